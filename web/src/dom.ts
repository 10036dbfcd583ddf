// Making and finding elements. No markup from strings: what comes from a model or a server becomes
// text nodes, or goes through markdown.ts.

type Child = Node | string | null | undefined | false;
type Value = string | number | boolean | undefined | ((event: never) => void);

// Keys that begin with "on" are listeners, true is an attribute without a value.
export function el<K extends keyof HTMLElementTagNameMap>(
    tag: K, props: Record<string, Value> = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (typeof value === 'function')
      node.addEventListener(key.slice(2), value as EventListener);
    else if (value === true) node.setAttribute(key, '');
    else if (value !== false && value !== undefined) node.setAttribute(key, String(value));
  }
  for (const child of children) if (child) node.append(child);
  return node;
}

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const node = document.getElementById(id);
  if (!node) throw new Error(`index.html has no #${id}`);
  return node as T;
}

export function svg(tag: string, props: Record<string, string | number>, ...children: Node[]): SVGElement {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(props)) node.setAttribute(key, String(value));
  node.append(...children);
  return node;
}

// Strokes in a square of 24.
const ICONS = {
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  menu: 'M4 7h16M4 12h16M4 17h16',
  plus: 'M12 5v14M5 12h14',
  close: 'M6 6l12 12M18 6L6 18',
  sliders: 'M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4',
  copy: 'M9 9h10v11H9zM15 9V4H5v11h4',
  check: 'M5 12.5l4.5 4.5L19 7',
  again: 'M19 12a7 7 0 1 1-2.2-5.1M19 4v4h-4',
  edit: 'M4 20l1-4L15.5 5.5l3 3L8 19z',
  trash: 'M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13',
  down: 'M6 10l6 6 6-6',
  equal: 'M5 9.5h14M5 14.5h14',
  auto: 'M12 4a8 8 0 1 0 0 16 8 8 0 1 0 0-16zM12 4v16M12 8h6M12 12h8M12 16h6',
  light: 'M12 8a4 4 0 1 0 0 8 4 4 0 1 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M19 5l-1.4 1.4M6.4 17.6L5 19',
  dark: 'M19.5 14.5A8 8 0 1 1 9.5 4.5a6.5 6.5 0 0 0 10 10z',
} as const;
export type IconName = keyof typeof ICONS;

export function icon(name: IconName): SVGElement {
  return svg('svg', {viewBox: '0 0 24 24', 'aria-hidden': 'true', class: 'icon'}, svg('path', {d: ICONS[name]}));
}

// Puts the icons where index.html names them.
export function placeIcons(): void {
  for (const node of document.querySelectorAll<HTMLElement>('[data-icon]'))
    node.prepend(icon(node.dataset['icon'] as IconName));
}

export function iconButton(name: IconName, label: string, onclick: () => void): HTMLButtonElement {
  return el('button', {type: 'button', class: 'icon-button', 'aria-label': label, title: label, onclick}, icon(name));
}

// For screen readers only.
export function announce(text: string): void {
  byId('announcer').textContent = text;
}

// The clipboard API exists only on https and on this machine.
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const box = el('textarea', {class: 'visually-hidden', readonly: true});
    box.value = text;
    const focused = document.activeElement;
    document.body.append(box);
    box.select();
    const done = document.execCommand('copy');
    box.remove();
    if (focused instanceof HTMLElement) focused.focus();
    return done;
  }
}

export function copyButton(label: string, text: () => string): HTMLButtonElement {
  const button = iconButton('copy', label, () => {
    void copyText(text()).then(done => {
      button.replaceChildren(icon(done ? 'check' : 'close'));
      announce(done ? 'Copied' : 'Copying failed');
      setTimeout(() => button.replaceChildren(icon('copy')), 1500);
    });
  });
  return button;
}

// Enter sends. With Shift, and on a phone, whose keyboard has no Shift+Enter, it makes a line.
export function isSendKey(event: KeyboardEvent): boolean {
  if (event.key !== 'Enter') return false;
  const makesLine = event.shiftKey || event.altKey || matchMedia('(pointer: coarse)').matches;
  return event.ctrlKey || event.metaKey || !makesLine;
}

export function isPhone(): boolean {
  return matchMedia('(max-width: 800px)').matches;
}
