// The web page in a headless browser, with a real server and a scripted model behind it (30 s of CPU).
// Screenshots of the main states go to build/page (INVAR_PAGE_SHOTS).
import assert from 'node:assert/strict';
import {after, afterEach, before, describe, test} from 'node:test';
import {accessibilityProblems, ask, ended, idle, listed, newPage, send, shot, startBrowser, startServer, textOf, visit} from './harness.mjs';

// `desktop` is used again and again, as a new renderer takes longer than most tests; `page` is the one
// of the test that runs.
let browser, server, desktop, page;

// As for the first time, on a desktop or with a context of its own.
async function open({url = server.url, ...options} = {}) {
  page = Object.keys(options).length > 0 ? await newPage(browser, url, options) : desktop;
  await visit(page, url);
}

before(async () => {
  [browser, server] = await Promise.all([startBrowser(), startServer('--alias', 'scripted-model')]);
  desktop = await newPage(browser, server.url);
});
// Whatever a test did: nothing left the machine, and nothing broke the page's own policy.
afterEach(async () => {
  if (!page) return;  // skipped by its name
  assert.deepEqual(page.foreign.splice(0), []);
  assert.deepEqual(page.complaints.splice(0), []);
  if (page !== desktop) return page.context().close();
  await page.unrouteAll({behavior: 'ignoreErrors'});
  await page.setViewportSize({width: 1280, height: 800});
  await page.emulateMedia({colorScheme: 'light'});
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

describe('a conversation', () => {
  test('a reply is formatted and says what is known of it', async () => {
    await open();
    assert.match(await page.textContent('.welcome'), /scripted-model/);
    await shot(page, 'welcome');
    const reply = await ask(page, 'Please KEY:code');
    assert.equal(await reply.locator('strong').first().textContent(), 'a function');
    assert.equal(await reply.locator('.hljs-keyword').first().textContent(), 'def');
    assert.equal(await reply.locator('tbody tr').count(), 2);
    assert.match(await reply.locator('td').nth(1).evaluate(cell => getComputedStyle(cell).textAlign), /right$/);
    assert.match(await reply.locator('.facts').textContent(), /\d+ tokens.*seed \d+tokens [0-9a-f]{8}/s);
    assert.match(await page.textContent('#context-text'), /^[1-9][\d,]* of [\d,]+ tokens$/);
    assert.equal(await page.textContent('.conversation'), 'Please KEY:code');
    await shot(page, 'reply');
  });

  test('code is copied as it is', async () => {
    await open({permissions: ['clipboard-read', 'clipboard-write']});
    await ask(page, 'KEY:code');
    await page.click('[aria-label="Copy the code"]');
    await page.waitForFunction(() => document.getElementById('announcer').textContent === 'Copied');
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()),
        '# One more.\ndef successor(x: int) -> int:\n    return x + 1  # never less');
  });

  test('a reply streams; stopping keeps what came, and the server is free again', async () => {
    await open();
    await send(page, 'KEY:slow');
    await page.waitForSelector('.reply[aria-busy] .markdown p');
    await page.waitForFunction(() => /^\d{2,} tokens.*tokens\/s.*first token/s.test(document.querySelector('.reply .status').textContent));
    await shot(page, 'streaming');
    const edit = page.locator('[aria-label="Edit and send again"]');
    assert.equal(await edit.isVisible(), false);  // it could do nothing
    await page.click('#stop');
    const reply = await ended(page);
    assert.equal(await edit.isVisible(), true);
    assert.match(await textOf(reply), /^(word ?)+$/);
    assert.match(await reply.locator('.facts').textContent(), /Stopped/);
    await idle(page, server.url);
    assert.equal(await textOf(await ask(page, 'KEY:short')), 'Yes.');
  });

  test('regenerate and edit replace what follows', async () => {
    await open();
    await ask(page, 'KEY:short');
    await page.click('[aria-label="Regenerate"]');
    await ended(page);
    assert.equal(await page.locator('.message').count(), 2);
    await ask(page, 'KEY:think');
    assert.equal(await page.locator('.message').count(), 4);
    await page.locator('.user').first().hover();
    await page.locator('[aria-label="Edit and send again"]').first().click();
    assert.equal(await page.inputValue('.edit textarea'), 'KEY:short');
    await page.fill('.edit textarea', 'Rather KEY:default');
    await shot(page, 'edit');
    await page.click('.edit .primary');
    assert.equal(await textOf(await ended(page)), 'Hello.');
    assert.equal(await page.locator('.message').count(), 2);
    assert.equal(await page.textContent('#title'), 'Rather KEY:default');
  });

  test('reasoning is folded', async () => {
    await open();
    const reply = await ask(page, 'KEY:think');
    assert.equal(await reply.locator('.reasoning-text').isVisible(), false);
    assert.match(await reply.locator('summary').textContent(), /^Reasoning, \d+ tokens$/);
    assert.equal(await textOf(reply), 'It is 4.');
    await reply.locator('summary').click();
    assert.match(await reply.locator('.reasoning-text').textContent(), /^Two and two\.\n<img.*\nThat is four\.$/);
    await shot(page, 'reasoning');
  });

  test('a tool call is shown, and its result is given by hand', async () => {
    await open();
    await page.click('#panel-open');
    await page.fill('#setting-tools', '[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "note": {"type": "string"}}}}]');
    const asked = page.waitForRequest(request => request.method() === 'POST');
    await send(page, 'Oslo? KEY:weather');
    const body = (await asked).postDataJSON();
    assert.equal(body.tools[0].type, 'function');
    assert.equal(body.tools[0].function.name, 'weather');
    const reply = await ended(page);
    assert.equal(await reply.locator('.call .code-head code').textContent(), 'weather');
    assert.match(await reply.locator('.call pre').textContent(), /"city": "Oslo"/);
    await page.click('#panel-close');
    await shot(page, 'tool-call');
    await reply.locator('textarea').fill('rain, 4 degrees');
    await page.click('text=Send results');
    assert.equal(await textOf(await ended(page)), 'It rains in Oslo.');
    assert.equal(await page.textContent('.result pre'), 'rain, 4 degrees');
  });

  test('a repetition with the same seed is compared', async () => {
    await open();
    const reply = await ask(page, 'KEY:code');
    await reply.locator('[aria-label^="Repeat"]').click();
    await page.waitForSelector('.outcome.equal');
    assert.match(await reply.locator('.outcome').textContent(), /^Equal: the same \d+ tokens/);
    // A page that always said "equal" would be worth nothing.
    await page.route('**/v1/chat/completions', async route => {
      const answer = await (await route.fetch()).json();
      answer.invar.token_sha = ['0'.repeat(64)];
      await route.fulfill({json: answer});
    });
    await reply.locator('[aria-label^="Repeat"]').click();
    await page.waitForSelector('.outcome.different');
  });

  test('conversations are kept, chosen and deleted', async () => {
    await open();
    await ask(page, 'First KEY:short');
    await page.click('#new-chat');
    await ask(page, 'Second KEY:short');
    await page.reload();
    await page.waitForSelector('.reply .footer');
    assert.deepEqual(await page.locator('.conversation').allTextContents(), ['Second KEY:short', 'First KEY:short']);
    await page.click('text=First KEY:short');
    assert.equal(await page.textContent('.bubble'), 'First KEY:short');
    await page.locator('#conversations li').first().hover();
    await page.click('[aria-label^="Delete \\"Second"]');
    await page.click('dialog .danger');
    await listed(page, 'First KEY:short');
    await page.click('#clear-all');
    await page.click('dialog .danger');
    await listed(page);
    assert.equal(await page.evaluate(() => Object.keys(localStorage).length), 0);
  });

  test('two conversations are answered at once', async () => {
    await open();
    await send(page, 'KEY:slow');
    await page.waitForSelector('.reply .markdown p');
    await page.click('#new-chat');
    assert.equal(await textOf(await ask(page, 'KEY:short')), 'Yes.');
    assert.equal(await page.locator('.dot.busy').count(), 1);
    await page.click('.conversation:has(.dot.busy)');
    await page.waitForSelector('.reply[aria-busy]');
    await page.keyboard.press('Escape');
    await ended(page);
    assert.equal(await page.locator('.dot.busy').count(), 0);
  });
});

describe('what is kept', () => {
  const keep = (...conversations) => page.evaluate(all => {
    for (const one of all) localStorage.setItem(`invar.conversation.${one.id}`, JSON.stringify(one));
  }, conversations);

  test('another tab that writes its own conversation disturbs nothing', async () => {
    await open();
    await ask(page, 'First KEY:short');
    await page.click('[aria-label="Edit and send again"]');
    await page.fill('.edit textarea', 'Half an edit');
    const other = await page.context().newPage();
    try {
      await other.goto(server.url);
      await other.waitForSelector('#status-dot.ready');
      await other.click('#new-chat');
      await send(other, 'Second KEY:slow');
      await page.waitForSelector('.conversation:has-text("Second")');
      assert.equal(await page.inputValue('.edit textarea'), 'Half an edit');
      // What is open there is kept up with.
      await page.click('.conversation:has-text("Second")');
      await other.click('#stop');
      await page.waitForSelector('.facts:has-text("Stopped by you")');
      // Deleted here while it is written there, it is gone in both, and nobody writes on.
      await send(other, 'More KEY:slow');
      await page.waitForSelector('.bubble:has-text("More")');
      await page.hover('#conversations li:has-text("Second")');
      await page.click('[aria-label^="Delete \\"Second"]');
      await page.click('dialog .danger');
      await listed(page, 'First KEY:short');
      await listed(other, 'First KEY:short');
      await idle(page, server.url);
      assert.equal(await other.evaluate(() => Object.keys(localStorage).length), 1);
    } finally {
      await other.close();
    }
  });

  test('conversations of other versions', async () => {
    await open();
    const messages = [{role: 'user', content: 'Before'}];
    await keep({id: 'old', title: 'Old', updated: 2, settings: {system: 'Be brief.'}, messages},
               {id: 'odd', title: 'Odd', updated: 1, settings: null, messages});
    await page.reload();
    await page.waitForSelector('#status-dot.ready');
    assert.deepEqual(await page.locator('.conversation').allTextContents(), ['Old']);
    assert.equal(await textOf(await ask(page, 'KEY:short')), 'Yes.');
    assert.equal(await page.evaluate(() => localStorage.getItem('invar.conversation.odd') !== null), true);
  });

  test('where the browser keeps nothing, the page works until it is closed', async () => {
    page = await newPage(browser, server.url);
    await page.addInitScript(() => {
      for (const name of ['localStorage', 'sessionStorage'])
        Object.defineProperty(window, name, {get: () => { throw new DOMException('blocked', 'SecurityError'); }});
    });
    await page.goto(server.url);
    await page.waitForSelector('#status-dot.ready');
    await page.click('#theme');
    assert.equal(await textOf(await ask(page, 'KEY:short')), 'Yes.');
    assert.match(await page.textContent('#banner'), /keeps nothing/);
    assert.deepEqual(await page.locator('.conversation').allTextContents(), ['KEY:short']);
  });
});

describe('settings', () => {
  test('what is set is sent, what is empty is not, what is wrong is shown', async () => {
    await open();
    await page.click('#panel-open');
    await page.fill('#setting-system', 'Be brief.');
    await page.fill('#setting-temperature', '0.5');
    await page.fill('#setting-seed', '42');
    await page.fill('#setting-json_schema', '{"type": "object"}');
    await shot(page, 'settings');
    let asked = page.waitForRequest(request => request.method() === 'POST');
    let reply = await ask(page, 'KEY:short');
    const {messages, stream, stream_options, ...fields} = (await asked).postDataJSON();
    assert.deepEqual(messages.map(message => message.role), ['system', 'user']);
    assert.deepEqual(fields, {
      model: 'scripted-model', temperature: 0.5, seed: 42,
      response_format: {type: 'json_schema', json_schema: {name: 'reply', schema: {type: 'object'}}},
    });
    assert.match(await reply.locator('.facts').textContent(), /seed 42/);

    await page.fill('#setting-temperature', '9');
    assert.match(await page.textContent('#setting-temperature-error'), /from 0 to 5/);
    reply = await ask(page, 'KEY:short');
    assert.match(await reply.locator('.error').textContent(), /setting/);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'setting-temperature');
    await page.fill('#setting-temperature', '');
    await page.click('text=Try again');
    assert.equal(await textOf(await ended(page)), 'Yes.');
  });

  test('the model’s facts', async () => {
    await open();
    await page.click('#model-chip');
    const facts = await page.textContent('#view-model');
    for (const word of ['scripted-model', 'Arithmetic', 'Model hash', 'Backend', 'Window']) assert.ok(facts.includes(word), word);
    await shot(page, 'model');
    const licences = await page.request.get(`${server.url}licenses.txt`);
    for (const name of ['marked', 'dompurify', 'highlight.js']) assert.ok((await licences.text()).includes(`\n${name} `), name);
  });
});

describe('load', () => {
  test('running requests are listed, and cancelled', async () => {
    await open();
    await page.click('#panel-open');
    await page.click('#tab-load');
    await send(page, 'KEY:slow');
    await page.waitForSelector('.requests td:has-text("decode")');
    await shot(page, 'requests');
    // The rows are kept up to date, and the button in them is not taken from under a hand.
    const button = await page.waitForSelector('.requests button');
    const before = await page.textContent('.requests td:nth-child(3)');
    await page.waitForFunction(text => document.querySelector('.requests td:nth-child(3)')?.textContent !== text, before);
    await button.click();
    const reply = await ended(page);
    assert.match(await reply.locator('.error').textContent(), /cancelled/);
    await page.waitForSelector('.requests .note');
  });

  test('metrics become figures and lines', async () => {
    await open();
    let tokens = 1000;
    await page.route('**/metrics', route => route.fulfill({contentType: 'text/plain; version=0.0.4', body: `# HELP invar_requests_running r
# TYPE invar_requests_running gauge
invar_requests_running{model_name="m",engine="0"} 3
invar_requests_waiting{model_name="m",engine="0"} 2
invar_kv_cache_usage_ratio{model_name="m",engine="0"} 0.25
invar_generation_tokens_total{model_name="m",engine="0"} ${tokens += 200}
invar_prompt_tokens_total{model_name="m",engine="0"} 5
invar_prefix_cache_queries_total{model_name="a } b",engine="0"} 10
invar_prefix_cache_hits_total{model_name="a } b",engine="0"} 4
invar_step_seconds_bucket{le="+Inf"} 7
process_resident_memory_bytes 1.5e+09
`}));
    await page.click('#panel-open');
    await page.click('#tab-load');
    await page.waitForFunction(() => (document.querySelector('.line').getAttribute('d') ?? '').split('L').length >= 3);
    const tiles = await page.textContent('.tiles');
    for (const text of ['Running3', 'Waiting2', 'used25.0 %', 'hits40 %', 'Memory1.4 GiB']) assert.ok(tiles.includes(text), `${text}: ${tiles}`);
    assert.match(await page.textContent('.chart figcaption'), /^Output[1-9]\d* tokens\/s$/);
    assert.deepEqual(await accessibilityProblems(page), []);
    await shot(page, 'load');
    await page.unroute('**/metrics');
    await page.route('**/metrics', route => route.fulfill({status: 404, json: {error: {message: 'none', code: 'route_not_found'}}}));
    await page.waitForSelector('text=This server has no /metrics.');
  });
});

describe('when something is wrong', () => {
  test('a reply is a stranger’s: its markup is inert', async () => {
    await open();
    const reply = await ask(page, '<img src=x onerror="window.pwned = 15"> KEY:xss');
    const markdown = reply.locator('.markdown');
    assert.match(await textOf(reply), /<script>window\.pwned = 1<\/script>[^]*End of it\.$/);
    assert.equal(await markdown.locator('script, img, svg:not(.icon), iframe, style, form, base, meta, object, embed, input').count(), 0);
    const attributes = await markdown.evaluate(root => [...root.querySelectorAll('*')].flatMap(
        node => [...node.attributes].map(each => each.name)).filter(name => name.startsWith('on') || name === 'style'));
    assert.deepEqual(attributes, []);
    const links = await markdown.locator('a').evaluateAll(all => all.map(link => [link.textContent, link.getAttribute('href')]));
    for (const [text, href] of links) assert.ok(href === null || /^https?:/.test(href), `${text}: ${href}`);
    assert.ok(links.some(([text, href]) => text === 'good' && href === 'https://example.org/'));
    for (const link of await markdown.locator('a:not([href])').all()) await link.click();
    await markdown.locator('pre').hover();
    await ask(page, 'KEY:think');
    await ask(page, 'KEY:weather');
    await page.reload();
    await page.waitForSelector('.reply .footer');
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.equal(await page.locator('#log img, #sidebar #conversations img').count(), 0);
    await shot(page, 'inert');
  });

  test('the policy stands behind it: no inline script runs', async () => {
    await open();
    const complaint = page.waitForEvent('console', message => message.type() === 'error');
    await page.evaluate(() => {
      const script = document.createElement('script');
      script.textContent = 'window.pwned = 1';
      document.body.append(script);
    });
    assert.match((await complaint).text(), /Content Security Policy/);
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    page.complaints.pop();
  });

  test('loading is shown, then the page is ready by itself', async () => {
    await open();
    let progress = 0.42;
    await page.route('**/health', route => progress === undefined ? route.continue() : route.fulfill({
      status: 503, json: {status: 'loading', phase: 'packing', progress, error: {message: 'model is loading'}},
    }));
    await page.reload();
    await page.waitForSelector('text=The model is loading: packing 42 %');
    assert.equal(await page.isDisabled('#send'), true);
    await shot(page, 'loading');
    progress = undefined;
    await page.waitForSelector('#status-dot.ready');
    assert.equal(await page.isDisabled('#send'), false);
  });

  test('another model that is served after a restart is seen', async () => {
    await open();
    await page.route('**/v1/models', async route => {
      const answer = await (await route.fetch()).json();
      answer.data[0].id = 'another-model';
      await route.fulfill({json: answer});
    });
    await page.route('**/health', route => route.fulfill({status: 503, json: {status: 'loading', phase: 'packing'}}));
    await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
    await page.waitForSelector('#status-dot.loading');
    await page.unroute('**/health');
    await page.waitForSelector('#model-name:has-text("another-model")');
  });

  test('a prompt beyond the window, and a fault in the middle', async () => {
    const small = await startServer('--context', '300');
    try {
      page = await newPage(browser, small.url);
      await visit(page, small.url);
      let reply = await ask(page, 'long '.repeat(100));
      assert.match(await reply.locator('.error').textContent(), /longer than the model’s window.*a window of 300/s);
      await shot(page, 'error');
      await page.click('#new-chat');
      reply = await ask(page, 'KEY:fault');
      assert.match(await reply.locator('.error strong').textContent(), /failed/);
      assert.match(await textOf(reply), /^This/);
    } finally {
      await small.stop();
    }
  });

  test('a key is asked for, kept in the tab, and sent', async () => {
    const locked = await startServer('--api-key', 'sesame', '--api-prefix', '/llm');
    try {
      page = await newPage(browser, locked.url);
      await page.goto(`${locked.url}llm`);
      await page.waitForSelector('dialog');
      await shot(page, 'key');
      await page.fill('#key', 'wrong');
      await page.press('#key', 'Enter');
      await page.waitForSelector('text=That API key is not known');
      await page.fill('#key', 'sesame');
      await page.press('#key', 'Enter');
      await page.waitForFunction(() => document.getElementById('model-name').textContent !== 'no key');
      assert.equal(await textOf(await ask(page, 'KEY:short')), 'Yes.');
      assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes('sesame')), false);
      assert.equal(await page.evaluate(() => sessionStorage.getItem('invar.key')), 'sesame');
    } finally {
      await locked.stop();
    }
  });

  test('a server that went away, and came back', async () => {
    await open();
    await page.route('**/*', route => route.abort());
    const reply = await ask(page, 'KEY:short');
    assert.match(await reply.locator('.error').textContent(), /cannot be reached/);
    await page.waitForSelector('#status-dot.down');
    await page.unroute('**/*');
    await page.waitForSelector('#status-dot.ready');
    await page.click('text=Try again');
    assert.equal(await textOf(await ended(page)), 'Yes.');
  });
});

describe('for everybody', () => {
  const focused = () => page.evaluate(() => {
    const node = document.activeElement;
    return node.id || node.getAttribute('aria-label') || node.textContent.trim();
  });

  test('by keyboard alone', async () => {
    await open();
    assert.equal(await focused(), 'prompt');
    await page.keyboard.type('KEY:short and');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('KEY:slow');
    await page.keyboard.press('Control+Enter');
    assert.equal(await page.textContent('.bubble'), 'KEY:short and\nKEY:slow');
    await page.waitForSelector('.reply .markdown p');
    await page.keyboard.press('Escape');
    await ended(page);
    // The last message is edited from an empty box, and left with Esc.
    assert.equal(await focused(), 'prompt');
    await page.keyboard.press('ArrowUp');
    assert.equal(await page.evaluate(() => document.activeElement.value), 'KEY:short and\nKEY:slow');
    await page.keyboard.press('Escape');
    assert.equal(await focused(), 'Edit and send again');
    // The panel: open, through its tabs, and back to where it was opened.
    await page.focus('#panel-open');
    await page.keyboard.press('Enter');
    assert.equal(await focused(), 'tab-settings');
    await page.keyboard.press('ArrowRight');
    assert.equal(await focused(), 'tab-model');
    assert.equal(await page.isVisible('#view-model'), true);
    await page.keyboard.press('Escape');
    assert.equal(await focused(), 'panel-open');
    // All that can be used is reached by Tab, in the order in which it is seen.
    await page.evaluate(() => document.activeElement.blur());
    const order = [];
    for (let i = 0; i < 40; ++i) {
      await page.keyboard.press('Tab');
      const name = await focused();
      if (order.includes(name)) break;
      order.push(name);
    }
    const expected = ['new-chat', 'clear-all', 'model-chip', 'theme', 'panel-open', 'Regenerate', 'prompt', 'send'];
    // Tab went on from where the focus was last.
    const first = order.indexOf(expected[0]);
    assert.deepEqual([...order.slice(first), ...order.slice(0, first)].filter(name => expected.includes(name)), expected);
  });

  for (const colorScheme of ['light', 'dark']) {
    test(`no accessibility problem that axe-core finds, ${colorScheme}`, async () => {
      await open();
      await page.emulateMedia({colorScheme});
      await ask(page, 'KEY:code');
      await ask(page, 'KEY:think');
      assert.deepEqual(await accessibilityProblems(page), []);
      await shot(page, `chat-${colorScheme}`);
      await page.click('#panel-open');
      for (const tab of ['settings', 'model', 'load']) {
        await page.click(`#tab-${tab}`);
        assert.deepEqual(await accessibilityProblems(page), [], tab);
      }
    });
  }

  test('the theme follows the system until one is chosen', async () => {
    await open();
    await page.emulateMedia({colorScheme: 'dark'});
    const isDark = () => page.evaluate(() => Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0]) < 80);
    assert.equal(await isDark(), true);
    await page.click('#theme');
    assert.equal(await isDark(), false);
    await page.reload();
    assert.equal(await isDark(), false);
    await page.emulateMedia({colorScheme: 'light'});
    await page.click('#theme');
    assert.equal(await isDark(), true);
  });

  test('a phone of 360 pixels', async () => {
    await open({viewport: {width: 360, height: 740}, hasTouch: true, isMobile: true});
    const fits = async what => {
      const wide = await page.evaluate(() => [...document.querySelectorAll('button, textarea, input, article, p, h1, h2')]
          .filter(node => node.checkVisibility({visibilityProperty: true}))
          .map(node => ({node, box: node.getBoundingClientRect()}))
          .filter(({box}) => box.width > 1 && (box.left < 0 || box.right > innerWidth))
          .map(({node}) => node.outerHTML.slice(0, 100)));
      assert.deepEqual(wide, [], what);
      assert.equal(await page.evaluate(() => document.scrollingElement.scrollWidth), 360, what);
    };
    await fits('welcome');
    await page.fill('#prompt', 'KEY:code');
    await page.tap('#send');
    await ended(page);
    await fits('reply');
    await shot(page, 'phone');
    // Its keyboard has no Shift+Enter: Enter makes a line, in both boxes.
    await page.tap('[aria-label="Edit and send again"]');
    await page.press('.edit textarea', 'Enter');
    assert.equal(await page.inputValue('.edit textarea'), 'KEY:code\n');
    await page.tap('text=Cancel');
    await page.tap('#panel-open');
    await fits('panel');
    await shot(page, 'phone-settings');
    await page.tap('#panel-close');
    await page.tap('#sidebar-open');
    await fits('list');
    await shot(page, 'phone-list');
    await page.keyboard.press('Escape');
    assert.equal(await focused(), 'sidebar-open');
  });
});
