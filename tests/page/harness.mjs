// What the tests of the page share: servers with a scripted model, a browser, pages that note every
// request to another origin and every complaint of the browser.
import {spawn} from 'node:child_process';
import {existsSync, mkdirSync} from 'node:fs';
import {createRequire} from 'node:module';
import {delimiter, dirname, join} from 'node:path';
import {createInterface} from 'node:readline';
import {fileURLToPath} from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(join(here, '../../web/package.json'));

function packageOf(name) {
  try {
    return require(name);
  } catch (error) {
    throw new Error(`${name} is missing; run node web/packages.mjs --dev`, {cause: error});
  }
}

const {chromium} = packageOf('playwright-core');
const axe = require.resolve('axe-core/axe.min.js');
// How long anything may take, on a machine that is busy with builds: a test waits for what it expects,
// and so is no slower for it.
const PATIENCE_MS = 90_000;
const SHOTS = process.env.INVAR_PAGE_SHOTS ?? join(here, '../../build/page');

function browserPath() {
  const names = ['chromium', 'chromium-browser', 'google-chrome'];
  const path = process.env.PATH.split(delimiter).flatMap(folder => names.map(name => join(folder, name))).find(existsSync);
  if (!path) throw new Error('no Chromium here; run tools/setup.sh page');
  return path;
}

// So that servers end with us, also when a time-out of the runner ends us.
for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => process.exit(1));

export async function startBrowser() {
  // Its sandbox does not work for root.
  return chromium.launch({
    timeout: PATIENCE_MS, executablePath: browserPath(), args: ['--disable-gpu', ...(process.getuid() === 0 ? ['--no-sandbox'] : [])],
  });
}

// A server with the replies of script.json. `url` ends with a slash.
export async function startServer(...flags) {
  const binary = process.env.INVAR_BIN;
  if (!binary) throw new Error('INVAR_BIN names the invar binary under test; it is not set');
  const child = spawn(binary, ['serve', '--backend', 'scripted', '--script', join(here, 'script.json'), '--port', '0', ...flags],
                      {stdio: ['ignore', 'pipe', 'pipe']});
  let log = '';
  child.stderr.on('data', data => log += data);
  process.once('exit', () => child.kill('SIGKILL'));
  const exited = new Promise(resolve => child.once('exit', resolve));
  const isReady = async () => {  // it listens before it has read the script
    const line = await new Promise(resolve => createInterface({input: child.stdout}).once('line', resolve));
    const url = `${line.trim()}/`;
    while ((await fetch(`${url}health`)).status === 503) await new Promise(resolve => setTimeout(resolve, 20));
    return url;
  };
  const url = await Promise.race([isReady(), exited.then(code => {
    throw new Error(`invar serve ended with ${code}:\n${log}`);
  })]);
  const stop = async () => {
    child.kill('SIGTERM');
    child.kill('SIGTERM');
    await exited;
  };
  return {url, stop};
}

// A page of a context of its own. `foreign`: URLs it asked for elsewhere; `complaints`: errors of its
// script and refusals of its content security policy.
export async function newPage(browser, url, options = {}) {
  const context = await browser.newContext({viewport: {width: 1280, height: 800}, reducedMotion: 'reduce', ...options});
  context.setDefaultTimeout(PATIENCE_MS);  // other tabs of it too
  const page = await context.newPage();
  const {origin} = new URL(url);
  const foreign = [], complaints = [];
  await context.route(target => target.origin !== origin, route => {
    foreign.push(route.request().url());
    return route.abort();
  });
  page.on('pageerror', error => complaints.push(String(error)));
  page.on('console', message => {
    // What the server refuses is the browser's business to report, not a fault.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) complaints.push(message.text());
  });
  return Object.assign(page, {foreign, complaints});
}

// Opens the page of `url` as for the first time, and waits until it is ready.
export async function visit(page, url) {
  await page.goto(url);
  if (await page.evaluate(() => localStorage.length + sessionStorage.length) > 0) {
    await page.evaluate(() => {
      localStorage.clear();
      sessionStorage.clear();
    });
    await page.goto(url);
  }
  await page.waitForSelector('#status-dot.ready');
}

export async function send(page, text) {
  await page.fill('#prompt', text);
  await page.press('#prompt', 'Enter');
}

// The newest reply, when it has ended.
export async function ended(page) {
  await page.waitForSelector('#stop', {state: 'hidden'});
  return page.locator('.reply').last();
}

export async function ask(page, text) {
  await send(page, text);
  return ended(page);
}

export async function textOf(reply) {
  return (await reply.locator('.markdown').textContent()).trim();
}

// Until the list of conversations is this: what a dialog does happens after the click in it.
export async function listed(page, ...titles) {
  await page.waitForFunction(
      wanted => JSON.stringify([...document.querySelectorAll('.conversation')].map(node => node.textContent)) === wanted,
      JSON.stringify(titles));
}

// Until the server answers nobody: what a client that goes away leaves is cancelled soon, not at once.
export async function idle(page, url) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const {data} = await (await page.request.get(`${url}v1/requests`)).json();
    if (data.length === 0) return;
    if (Date.now() > deadline) throw new Error(`still answered: ${JSON.stringify(data)}`);
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}

export async function shot(page, name) {
  mkdirSync(SHOTS, {recursive: true});
  await page.screenshot({path: join(SHOTS, `${name}.png`)});
}

// What axe-core finds against WCAG 2 A and AA, in words.
export async function accessibilityProblems(page) {
  const {readFileSync} = await import('node:fs');
  await page.evaluate(readFileSync(axe, 'utf8'));
  const {violations} = await page.evaluate(
      () => window.axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}));
  return violations.flatMap(({id, nodes}) => nodes.map(({target, failureSummary}) => `${id}: ${target}: ${failureSummary}`));
}
