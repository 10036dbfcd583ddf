// The conversation on the page: its messages in order, and scrolling that follows a reply as long as
// the reader is at its end.
import type {Progress} from './chat_request.js';
import type {Conversation, Reply} from './conversation.js';
import {byId, el} from './dom.js';
import {ReplyView, toolResultView, userView, type MessageActions} from './message_view.js';

const NEAR_END_PX = 80;

export class LogView {
  private readonly log = byId('log');
  private readonly scroller = byId('scroll');
  private readonly toEnd = byId('to-end');
  private readonly views = new Map<Reply, ReplyView>();
  private follows = true;

  constructor(private readonly actions: MessageActions) {
    this.scroller.addEventListener('scroll', () => {
      this.follows = this.isNearEnd();
      this.toEnd.hidden = this.follows;
    }, {passive: true});
    this.toEnd.addEventListener('click', () => this.scrollToEnd());
    new ResizeObserver(() => {
      if (this.follows) this.scrollToEnd();
    }).observe(this.log);
  }

  // All of it anew. `running`: the reply that is being written, if any.
  show(conversation: Conversation, running: Reply | undefined, welcome: HTMLElement): void {
    this.views.clear();
    const {messages} = conversation;
    this.log.replaceChildren(...messages.map((message, index) => {
      if (message.role === 'user') return userView(message, this.actions);
      if (message.role === 'tool') return toolResultView(message);
      const view = new ReplyView(message, this.actions);
      this.views.set(message, view);
      if (message !== running) view.finish(index + 1 === messages.length);
      return view.element;
    }));
    if (messages.length === 0) this.log.append(welcome);
    this.log.classList.toggle('empty', messages.length === 0);
    this.log.classList.toggle('running', running !== undefined);
    this.scrollToEnd();
  }

  progress(reply: Reply, progress: Progress): void {
    this.views.get(reply)?.progress(progress);
    if (this.follows) this.scrollToEnd();
  }

  // The last message's writing has ended.
  finish(reply: Reply): void {
    this.views.get(reply)?.finish(true);
    this.log.classList.remove('running');
    if (this.follows) this.scrollToEnd();
  }

  scrollToEnd(): void {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.follows = true;
    this.toEnd.hidden = true;
  }

  private isNearEnd(): boolean {
    const {scrollTop, clientHeight, scrollHeight} = this.scroller;
    return scrollTop + clientHeight >= scrollHeight - NEAR_END_PX;
  }
}

export function welcomeView(title: string, lines: readonly string[]): HTMLElement {
  return el('div', {class: 'welcome'}, el('h2', {}, title), ...lines.map(line => el('p', {}, line)));
}

