// The list of conversations; on a phone it lies over the page.
import {type Conversation} from './conversation.js';
import {byId, el, iconButton, isPhone} from './dom.js';

export interface SidebarActions {
  choose(id: string): void;
  create(): void;
  remove(conversation: Conversation): void;
  removeAll(): void;
}

export class Sidebar {
  private readonly element = byId('sidebar');
  private readonly list = byId('conversations');
  private readonly opener = byId<HTMLButtonElement>('sidebar-open');
  private shown = '';

  constructor(private readonly actions: SidebarActions) {
    byId('new-chat').addEventListener('click', () => {
      this.close();
      actions.create();
    });
    byId('clear-all').addEventListener('click', () => actions.removeAll());
    this.opener.addEventListener('click', () => this.open());
    byId('sidebar-close').addEventListener('click', () => this.close());
    byId('main').addEventListener('pointerdown', () => this.close());
    this.element.addEventListener('keydown', event => {
      if (event.key === 'Escape' && this.isOpen()) {
        event.stopPropagation();
        this.close();
      }
    });
  }

  show(conversations: readonly Conversation[], current: string, running: ReadonlySet<string>): void {
    // Left alone when it is the same, as while another tab's reply grows: the focus may be in it.
    const shown = JSON.stringify([conversations.map(one => [one.id, one.title, running.has(one.id)]), current]);
    if (shown === this.shown) return;
    this.shown = shown;
    this.list.replaceChildren(...conversations.map(one => el('li', {class: one.id === current ? 'current' : undefined},
        el('button', {
          class: 'conversation', 'aria-current': one.id === current ? 'page' : undefined, title: one.title,
          onclick: () => {
            this.close();
            this.actions.choose(one.id);
          },
        }, running.has(one.id) && el('span', {class: 'dot busy', role: 'img', 'aria-label': 'Being answered'}), one.title),
        iconButton('trash', `Delete "${one.title}"`, () => this.actions.remove(one)))));
    byId('clear-all').hidden = conversations.length === 0;
  }

  private isOpen(): boolean {
    return this.element.classList.contains('open');
  }

  private open(): void {
    this.element.classList.add('open');
    this.opener.setAttribute('aria-expanded', 'true');
    byId('sidebar-close').focus();
  }

  private close(): void {
    if (!this.isOpen()) return;
    this.element.classList.remove('open');
    this.opener.setAttribute('aria-expanded', 'false');
    if (isPhone() && this.element.contains(document.activeElement)) this.opener.focus();
  }
}
