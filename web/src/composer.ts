// Where messages are written, and how much of the model's window the conversation takes.
import type {Conversation} from './conversation.js';
import {byId, isSendKey} from './dom.js';
import {count} from './format.js';

export interface ComposerActions {
  send(text: string): void;
  stop(): void;
  editLast(): void;
}

export class Composer {
  private readonly box = byId<HTMLTextAreaElement>('prompt');
  private readonly sendButton = byId<HTMLButtonElement>('send');
  private readonly stopButton = byId<HTMLButtonElement>('stop');
  private isRunning = false;
  private obstacle = '';

  constructor(private readonly actions: ComposerActions) {
    byId('composer').addEventListener('submit', event => {
      event.preventDefault();
      this.send();
    });
    this.stopButton.addEventListener('click', () => actions.stop());
    this.box.addEventListener('input', () => this.fit());
    this.box.addEventListener('keydown', event => {
      if (event.isComposing) return;
      if (isSendKey(event)) {
        event.preventDefault();
        this.send();
      } else if (event.key === 'ArrowUp' && this.box.value === '' && !this.isRunning) {
        event.preventDefault();
        actions.editLast();
      }
    });
    document.addEventListener('keydown', event => {
      if (event.key !== 'Escape' || event.defaultPrevented || !this.isRunning || document.querySelector('dialog[open]')) return;
      event.preventDefault();
      actions.stop();
    });
    this.fit();
  }

  focus(): void {
    this.box.focus();
  }

  showRunning(isRunning: boolean): void {
    const hadFocus = document.activeElement === this.sendButton || document.activeElement === this.stopButton;
    this.isRunning = isRunning;
    this.sendButton.hidden = isRunning;
    this.stopButton.hidden = !isRunning;
    if (hadFocus) (isRunning ? this.stopButton : this.box).focus();
  }

  // Why nothing can be sent now, or ''.
  showObstacle(obstacle: string): void {
    this.obstacle = obstacle;
    this.sendButton.disabled = obstacle !== '';
    this.sendButton.title = obstacle;
  }

  // `writing`: tokens so far, while a reply is being written.
  showContext(conversation: Conversation, writing: number | undefined, window: number | undefined): void {
    const last = [...conversation.messages].reverse().find(message => message.role === 'assistant' && message.facts);
    const facts = last?.role === 'assistant' ? last.facts : undefined;
    const used = writing ?? (facts ? facts.promptTokens + facts.completionTokens : 0);
    byId('context').hidden = window === undefined;
    if (window === undefined) return;
    const part = Math.min(1, used / window);
    byId('context-text').textContent = `${count(used)} of ${count(window)} tokens`;
    const gauge = byId('context-gauge');
    gauge.setAttribute('aria-valuemax', String(window));
    gauge.setAttribute('aria-valuenow', String(used));
    gauge.classList.toggle('high', part > 0.85);
    (gauge.firstElementChild as HTMLElement).style.width = `${part * 100}%`;
  }

  private send(): void {
    const text = this.box.value;
    if (this.isRunning || this.obstacle || !text.trim()) return;
    this.box.value = '';
    this.fit();
    this.actions.send(text);
  }

  private fit(): void {
    this.box.style.height = 'auto';
    this.box.style.height = `${this.box.scrollHeight}px`;
  }
}
