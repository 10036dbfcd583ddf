// Bundles web/src and writes it as a C++ source, the assets that page_route.cc serves.
//
// usage: node web/build.mjs OUT.cc [--stamp FILE] [--optional]
//   --stamp     written when the page is complete
//   --optional  packages that cannot be had are a warning, and OUT.cc has no assets
import {existsSync, mkdirSync, readFileSync, writeFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {ensurePackages} from './packages.mjs';

const folder = dirname(fileURLToPath(import.meta.url));
const BUNDLED = ['dompurify', 'highlight.js', 'marked'];

async function bundle() {
  const esbuild = await import('esbuild');
  const common = {bundle: true, minify: true, write: false, logLevel: 'warning', charset: 'utf8'};
  const source = name => join(folder, 'src', name);
  const [script, style] = await Promise.all([
    esbuild.build({
      ...common, entryPoints: [source('main.ts')], format: 'iife', target: ['es2022'],
      legalComments: 'none',  // /licenses.txt has them whole
    }),
    esbuild.build({...common, entryPoints: [source('style.css')], target: ['chrome123', 'firefox120', 'safari17.5']}),
  ]);
  return [
    ['/', 'text/html; charset=utf-8', readFileSync(source('index.html'))],
    ['/app.js', 'text/javascript; charset=utf-8', script.outputFiles[0].contents],
    ['/app.css', 'text/css; charset=utf-8', style.outputFiles[0].contents],
    ['/icon.svg', 'image/svg+xml', readFileSync(source('icon.svg'))],
    ['/licenses.txt', 'text/plain; charset=utf-8', Buffer.from(licenses())],
  ];
}

// Their licences ask that the notices travel with the code.
function licenses() {
  const text = BUNDLED.map(name => {
    const package_ = join(folder, 'node_modules', name);
    const {version, license} = JSON.parse(readFileSync(join(package_, 'package.json'), 'utf8'));
    const file = ['LICENSE', 'LICENSE.md'].find(each => existsSync(join(package_, each)));
    if (!file) throw new Error(`${name} has no licence file`);
    return `${name} ${version} (${license})\n\n${readFileSync(join(package_, file), 'utf8').trim()}\n`;
  });
  return `The web page of Invar contains these libraries.\n\n${text.join(`\n${'-'.repeat(80)}\n\n`)}`;
}

// Octal escapes have at most three digits, so that a digit behind one stays a digit.
function literal(bytes) {
  const lines = [];
  for (let begin = 0; begin < bytes.length; begin += 80) {
    let line = '';
    for (const byte of bytes.slice(begin, begin + 80)) {
      const char = String.fromCharCode(byte);
      if (char === '"' || char === '\\' || char === '?') line += `\\${char}`;
      else if (byte >= 0x20 && byte < 0x7f) line += char;
      else line += `\\${byte.toString(8).padStart(3, '0')}`;
    }
    lines.push(`    "${line}"`);
  }
  return lines.join('\n');
}

function cxx(assets) {
  const entries = assets.map(([path, type, bytes]) =>
      `    {"${path}", "${type}", {\n${literal(bytes)},\n    ${bytes.length}}},\n`);
  const body = assets.length === 0
      ? '  return {};\n'
      : `  static constexpr PageAsset kAssets[] = {\n${entries.join('')}  };\n  return kAssets;\n`;
  return `// Made by web/build.mjs.\n#include "server/page_route.h"\n\nnamespace invar::server {\n\n` +
      `std::span<const PageAsset> page_assets() {\n${body}}\n\n}  // namespace invar::server\n`;
}

function writeIfOther(path, text) {
  if (existsSync(path) && readFileSync(path, 'utf8') === text) return;
  mkdirSync(dirname(path), {recursive: true});
  writeFileSync(path, text);
}

const [out, ...flags] = process.argv.slice(2);
const stamp = flags.includes('--stamp') ? flags[flags.indexOf('--stamp') + 1] : undefined;
try {
  ensurePackages({dev: false});
} catch (error) {
  if (!flags.includes('--optional')) throw error;
  console.error(`web page: left out, its packages cannot be installed (${error.message}); ` +
                'the next build tries again');
  writeIfOther(out, cxx([]));
  process.exit(0);
}
writeIfOther(out, cxx(await bundle()));
if (stamp) writeFileSync(stamp, '');
