// Installs the packages of web/package-lock.json into web/node_modules, by npm, when they are not
// there yet. Used by build.mjs and tools/setup.sh.
//
// usage: node web/packages.mjs [--dev]     --dev: also what lint and tests need
import {spawnSync} from 'node:child_process';
import {createHash} from 'node:crypto';
import {existsSync, readFileSync, writeFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {fileURLToPath, pathToFileURL} from 'node:url';

const folder = dirname(fileURLToPath(import.meta.url));

// A build must not hang where there is no network.
const TIMEOUT_MS = {build: 60_000, dev: 300_000};

// Throws when npm cannot do it.
export function ensurePackages({dev}) {
  const lock = createHash('sha256').update(readFileSync(join(folder, 'package-lock.json')));
  const hash = lock.digest('hex').slice(0, 16);
  const stamp = kind => join(folder, 'node_modules', `.invar-${kind}-${hash}`);
  if (existsSync(stamp('dev')) || (!dev && existsSync(stamp('build')))) return;
  // No scripts: esbuild works without its own, and nothing else has any.
  const flags = ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
  flags.push(...(dev ? [] : ['--omit=dev', '--fetch-retries=0']));
  const kind = dev ? 'dev' : 'build';
  const run = spawnSync('npm', flags, {
    cwd: folder, encoding: 'utf8', timeout: TIMEOUT_MS[kind], stdio: ['ignore', 'pipe', 'pipe'],
  });
  if (run.status !== 0) {
    const why = run.error?.message ?? run.stderr.trim().split('\n').slice(0, 3).join('; ');
    throw new Error(`npm ci: ${why || `exit status ${run.status}`}`);
  }
  writeFileSync(stamp(kind), '');
}

if (import.meta.url === pathToFileURL(process.argv[1]).href)
  ensurePackages({dev: process.argv.includes('--dev')});
