// Replies as formatted text. What a model writes is a stranger's: its HTML is shown as text, its
// images become links, and what marked makes goes through DOMPurify before it meets the page.
import DOMPurify from 'dompurify';
import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import c from 'highlight.js/lib/languages/c';
import cpp from 'highlight.js/lib/languages/cpp';
import csharp from 'highlight.js/lib/languages/csharp';
import css from 'highlight.js/lib/languages/css';
import diff from 'highlight.js/lib/languages/diff';
import dockerfile from 'highlight.js/lib/languages/dockerfile';
import go from 'highlight.js/lib/languages/go';
import ini from 'highlight.js/lib/languages/ini';
import java from 'highlight.js/lib/languages/java';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import kotlin from 'highlight.js/lib/languages/kotlin';
import lua from 'highlight.js/lib/languages/lua';
import makefile from 'highlight.js/lib/languages/makefile';
import php from 'highlight.js/lib/languages/php';
import python from 'highlight.js/lib/languages/python';
import ruby from 'highlight.js/lib/languages/ruby';
import rust from 'highlight.js/lib/languages/rust';
import sql from 'highlight.js/lib/languages/sql';
import swift from 'highlight.js/lib/languages/swift';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import {Marked, type Token, type TokensList} from 'marked';
import {copyButton, el} from './dom.js';

const LANGUAGES = {
  bash, c, cpp, csharp, css, diff, dockerfile, go, ini, java, javascript, json, kotlin, lua, makefile, php,
  python, ruby, rust, sql, swift, typescript, xml, yaml,
};
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

function escapeHtml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}

const marked = new Marked({
  gfm: true,
  breaks: true,  // models write one line end where they mean one
  renderer: {
    html: token => token.type === 'html' && token.block ? `<p>${escapeHtml(token.text)}</p>` : escapeHtml(token.text),
    image: ({href, text}) => `<a href="${escapeHtml(href)}">image: ${escapeHtml(text || href)}</a>`,
    checkbox: ({checked}) => (checked ? '☑ ' : '☐ '),
    code: ({text, lang}) => {
      const language = (lang ?? '').match(/^[\w+#.-]*/)?.[0] ?? '';
      return `<pre><code class="language-${escapeHtml(language)}">${escapeHtml(text)}</code></pre>`;
    },
  },
});

const ALLOWED = {
  ALLOWED_TAGS: [
    'p', 'br', 'hr', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'blockquote', 'pre', 'code', 'em', 'strong',
    'del', 'a', 'table', 'thead', 'tbody', 'tr', 'th', 'td',
  ],
  ALLOWED_ATTR: ['href', 'title', 'class', 'start', 'align'],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ADD_URI_SAFE_ATTR: ['start', 'align'],  // else their values would have to be such addresses
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true as const,
};

function decorate(fragment: DocumentFragment, isComplete: boolean): void {
  for (const link of fragment.querySelectorAll('a')) {
    link.target = '_blank';
    link.rel = 'noopener noreferrer';
  }
  for (const pre of fragment.querySelectorAll('pre')) {
    const code = pre.querySelector('code');
    if (!code) continue;
    const language = code.className.replace('language-', '');
    const text = code.textContent ?? '';
    // A block that still grows is not highlighted: on a CPU that time is the model's.
    if (isComplete && hljs.getLanguage(language))
      code.replaceChildren(DOMPurify.sanitize(
          hljs.highlight(text, {language, ignoreIllegals: true}).value,
          {ALLOWED_TAGS: ['span'], ALLOWED_ATTR: ['class'], RETURN_DOM_FRAGMENT: true}));
    const box = el('div', {class: 'code'});
    pre.replaceWith(box);
    pre.tabIndex = 0;  // scrolls sideways by keys
    box.append(el('div', {class: 'code-head'}, el('span', {}, language), copyButton('Copy the code', () => text)), pre);
  }
}

interface Block {
  raw: string;
  isComplete: boolean;
  node: HTMLElement;
}

// One reply's text, which grows. Blocks that did not change keep their elements, so that a long
// reply costs no more by the token than a short one, and a selection in it stays.
export class MarkdownView {
  private blocks: Block[] = [];
  private shown = '';  // the text that is in the blocks
  private isComplete = false;

  constructor(private readonly root: HTMLElement) {}

  update(text: string, isComplete: boolean): void {
    if (text === this.shown && isComplete === this.isComplete) return;
    this.shown = text;
    this.isComplete = isComplete;
    const tokens = marked.lexer(text);
    const shown = tokens.filter(token => token.type !== 'space' && token.type !== 'def');
    // A link may be defined further down.
    const redo = isComplete && Object.keys(tokens.links).length > 0;
    shown.forEach((token, index) => {
      const complete = isComplete || index + 1 < shown.length;
      const old = this.blocks[index];
      if (!redo && old && old.raw === token.raw && old.isComplete === complete) return;
      const node = this.render(token, tokens.links, complete);
      if (old) old.node.replaceWith(node);
      else this.root.append(node);
      this.blocks[index] = {raw: token.raw, isComplete: complete, node};
    });
    for (const block of this.blocks.splice(shown.length)) block.node.remove();
  }

  private render(token: Token, links: TokensList['links'], isComplete: boolean): HTMLElement {
    const html = marked.parser(Object.assign([token], {links}));
    const fragment = DOMPurify.sanitize(html, ALLOWED);
    decorate(fragment, isComplete);
    return el('div', {class: 'block'}, fragment);
  }
}
