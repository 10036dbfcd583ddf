// One message on the page: what it says, what is known of it, and what can be done with it.
import type {Progress} from './chat_request.js';
import type {Reply, ReplyError, ToolCall, ToolResult, UserMessage} from './conversation.js';
import {copyButton, el, icon, iconButton, isSendKey} from './dom.js';
import {count, duration, plural, rate} from './format.js';
import {MarkdownView} from './markdown.js';
import {settingOf, type SettingKey} from './settings.js';

export interface MessageActions {
  edit(message: UserMessage, text: string): void;
  regenerate(message: Reply): void;
  repeat(message: Reply, show: (text: string, kind: 'busy' | 'equal' | 'different' | 'failed') => void): void;
  sendResults(message: Reply, results: ToolResult[]): void;
  openSettings(key: SettingKey): void;
}

export function userView(message: UserMessage, actions: MessageActions): HTMLElement {
  const text = el('div', {class: 'bubble'}, message.content);
  const tools = el('div', {class: 'tools'},
      copyButton('Copy', () => message.content),
      iconButton('edit', 'Edit and send again', () => edit()));
  const article = el('article', {class: 'message user', 'aria-label': 'You'}, text, tools);

  function edit(): void {
    const box = el('textarea', {'aria-label': 'Edit your message', rows: Math.min(12, message.content.split('\n').length + 1)});
    box.value = message.content;
    const close = (): void => {
      form.replaceWith(text, tools);
      tools.querySelector<HTMLElement>('button:last-child')?.focus();
    };
    const form = el('form', {
      class: 'edit',
      onsubmit: (event: Event) => {
        event.preventDefault();
        if (box.value.trim()) actions.edit(message, box.value);
      },
      onkeydown: (event: KeyboardEvent) => {
        if (event.isComposing) return;
        if (event.key === 'Escape') {
          event.stopPropagation();
          close();
        } else if (isSendKey(event)) {
          event.preventDefault();
          form.requestSubmit();
        }
      },
    }, box, el('div', {class: 'row'},
        el('span', {class: 'note'}, 'The replies below are replaced.'),
        el('button', {type: 'button', onclick: close}, 'Cancel'),
        el('button', {class: 'primary'}, 'Send')));
    text.replaceWith(form);
    tools.remove();
    box.focus();
  }
  return article;
}

export function toolResultView(message: ToolResult): HTMLElement {
  return el('article', {class: 'message result', 'aria-label': 'Tool result'},
      el('span', {class: 'label'}, 'Result'), el('pre', {tabindex: 0}, message.content));
}

// A reply, from its first token to what is known of it at the end.
export class ReplyView {
  readonly element: HTMLElement;
  private readonly reasoning = el('details', {class: 'reasoning', hidden: true});
  private readonly reasoningTitle = el('summary');
  private readonly reasoningText = el('div', {class: 'reasoning-text'});
  private readonly body = el('div', {class: 'markdown'});
  private readonly calls = el('div', {class: 'calls'});
  private readonly status = el('div', {class: 'status'});
  private readonly markdown = new MarkdownView(this.body);
  private numReasoningTokens = 0;

  constructor(private readonly reply: Reply, private readonly actions: MessageActions) {
    this.reasoning.append(this.reasoningTitle, this.reasoningText);
    this.element = el('article', {class: 'message reply', 'aria-label': 'Reply'}, this.reasoning, this.body, this.calls, this.status);
  }

  // While it is being written.
  progress(progress: Progress): void {
    const {reply} = this;
    this.element.setAttribute('aria-busy', 'true');
    if (!reply.content && reply.toolCalls.length === 0) this.numReasoningTokens = progress.numTokens;
    this.text(false);
    const now = performance.now();
    this.element.classList.toggle('waiting', progress.firstToken === undefined);
    if (progress.firstToken === undefined) {
      this.status.replaceChildren(el('span', {}, `Waiting for the first token, ${((now - progress.begin) / 1000).toFixed(1)} s`));
      return;
    }
    const parts = [plural(progress.numTokens, 'token')];
    const decodeMs = (progress.lastToken ?? now) - progress.firstToken;
    if (progress.numTokens > 1 && decodeMs > 0) parts.push(`${rate((progress.numTokens - 1) * 1000 / decodeMs)} tokens/s`);
    parts.push(`first token ${duration(progress.firstToken - progress.begin)}`);
    this.status.replaceChildren(...facts(parts));
  }

  // When it has ended. Only the last message can be made anew or answered.
  finish(isLast: boolean): void {
    const {reply} = this;
    this.element.removeAttribute('aria-busy');
    this.element.classList.remove('waiting');
    this.numReasoningTokens = reply.facts?.reasoningTokens ?? 0;
    this.text(true);
    this.calls.replaceChildren(...reply.toolCalls.map(callView));
    if (isLast && reply.end === 'tool_calls') this.calls.append(this.resultForm());
    this.status.replaceChildren();
    if (reply.error) this.status.append(this.errorView(reply.error));
    this.status.append(this.footer(isLast));
    for (const warning of reply.facts?.warnings ?? []) this.status.append(el('p', {class: 'note'}, `Note: ${warning}`));
  }

  private text(isComplete: boolean): void {
    const {reply} = this;
    this.reasoning.hidden = reply.reasoning === '';
    const isThinking = !isComplete && !reply.content && reply.toolCalls.length === 0;
    const size = this.numReasoningTokens > 0 ? `, ${plural(this.numReasoningTokens, 'token')}` : '';
    this.reasoningTitle.textContent = `${isThinking ? 'Thinking' : 'Reasoning'}${size}`;
    if (this.reasoningText.textContent !== reply.reasoning) this.reasoningText.textContent = reply.reasoning;
    this.markdown.update(reply.content, isComplete);
    if (!isComplete) this.calls.replaceChildren(...reply.toolCalls.map(callView));
  }

  private footer(isLast: boolean): HTMLElement {
    const {reply} = this;
    const line = el('div', {class: 'facts'});
    const outcome = el('p', {class: 'outcome', role: 'status', hidden: true});
    if (reply.end === 'stopped') line.append(...facts(['Stopped by you']));
    else if (reply.end === '') line.append(...facts(['Cut off: the page was closed']));
    if (reply.facts) {
      const f = reply.facts;
      const parts = [plural(f.completionTokens, 'token')];
      if (f.tokensPerSecond > 0) parts.push(`${rate(f.tokensPerSecond)} tokens/s`);
      parts.push(`first token ${duration(f.ttftMs)}`);
      if (f.cachedTokens > 0) parts.push(`prompt ${count(f.promptTokens)}, ${count(f.cachedTokens)} cached`);
      if (reply.end === 'length') parts.push('ended at its length limit');
      line.append(...facts(parts));
      line.append(el('span', {class: 'exact'},
          el('span', {title: 'The seed of this reply'}, `seed ${f.seed}`),
          el('span', {title: `token_sha ${f.tokenSha}: the hash of this reply’s tokens\narithmetic ${f.arithmeticId}, model ${f.modelSha}`},
              'tokens ', el('code', {}, f.tokenSha.slice(0, 8)))));
    }
    const tools = el('div', {class: 'tools'});
    if (reply.content) tools.append(copyButton('Copy the reply', () => reply.content));
    if (isLast && !reply.error) tools.append(iconButton('again', 'Regenerate', () => this.actions.regenerate(reply)));
    if (reply.facts?.tokenSha) {
      const button = iconButton('equal', 'Repeat with the same seed and compare', () => {
        button.disabled = true;
        this.actions.repeat(reply, (text, kind) => {
          outcome.hidden = false;
          outcome.className = `outcome ${kind}`;
          outcome.replaceChildren(...(kind === 'equal' ? [icon('check')] : kind === 'busy' ? [] : [icon('close')]), text);
          button.disabled = kind === 'busy';
        });
      });
      tools.append(button);
    }
    return el('div', {class: 'footer'}, line, tools, outcome);
  }

  private errorView(error: ReplyError): HTMLElement {
    const card = el('div', {class: 'error', role: 'alert'}, el('strong', {}, headline(error)), el('p', {}, explain(error)));
    const row = el('div', {class: 'row'});
    row.append(el('button', {type: 'button', onclick: () => this.actions.regenerate(this.reply)}, 'Try again'));
    const setting = settingOf(error.param);
    if (setting) row.append(el('button', {type: 'button', onclick: () => this.actions.openSettings(setting)}, 'Open settings'));
    card.append(row);
    return card;
  }

  // The page has no tools of its own: their results are typed in.
  private resultForm(): HTMLElement {
    const boxes = this.reply.toolCalls.map(call => ({
      call, box: el('textarea', {rows: 2, 'aria-label': `Result of ${call.name}`, placeholder: `What ${call.name} returned`}),
    }));
    return el('form', {
      class: 'edit',
      onsubmit: (event: Event) => {
        event.preventDefault();
        this.actions.sendResults(this.reply, boxes.map(({call, box}) => ({role: 'tool', toolCallId: call.id, content: box.value})));
      },
    }, ...boxes.map(({call, box}) => el('label', {}, el('span', {class: 'label'}, `Result of ${call.name}`), box)),
        el('div', {class: 'row'}, el('span', {class: 'note'}, 'The page runs no tools: answer for them.'), el('button', {class: 'primary'}, 'Send results')));
  }
}

function facts(parts: readonly string[]): HTMLElement[] {
  return parts.map(part => el('span', {}, part));
}

function callView(call: ToolCall): HTMLElement {
  let text = call.arguments;
  try {
    text = JSON.stringify(JSON.parse(call.arguments), null, 2);
  } catch {
    // Still being written, or not JSON: as it is.
  }
  return el('div', {class: 'call'},
      el('div', {class: 'code-head'}, el('span', {}, 'Calls ', el('code', {}, call.name)), copyButton('Copy the arguments', () => call.arguments)),
      el('pre', {tabindex: 0}, text));
}

function headline(error: ReplyError): string {
  if (error.code === 'context_length_exceeded') return 'The conversation is longer than the model’s window';
  if (error.code === 'model_loading') return 'The model is still loading';
  if (error.code === 'draining') return 'The server is shutting down';
  if (error.code === 'no_answer' || error.code === 'cut_off') return 'The server cannot be reached';
  if (error.status === 401) return 'The server asks for an API key';
  if (error.status === 429) return 'The server has too many requests waiting';
  if (error.status >= 400 && error.status < 500) return 'The server refused the request';
  return 'The reply failed';
}

function explain(error: ReplyError): string {
  if (error.code !== 'context_length_exceeded') return error.message;
  const advice = 'Start a new conversation, edit an earlier message, or lower "Longest reply".';
  return error.numPromptTokens !== undefined && error.window !== undefined
      ? `${count(error.numPromptTokens)} tokens of prompt, a window of ${count(error.window)}. ${advice}`
      : `${error.message} ${advice}`;
}
