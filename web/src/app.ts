// The page: which conversation is seen, which replies are being written, and what each action does
// to them. Replies of several conversations may be written at once.
import {ApiError} from './api.js';
import {repeatReply, streamReply, type Progress} from './chat_request.js';
import {Composer} from './composer.js';
import {
  conversationOfKey, deleteConversation, loadConversation, loadConversations, newConversation, newestFirst,
  saveConversation, titleOf, UNTITLED, type Conversation, type Reply, type ToolResult, type UserMessage,
} from './conversation.js';
import {askForKey, confirmDelete} from './dialogs.js';
import {announce, byId} from './dom.js';
import {showFacts} from './facts_view.js';
import {count, plural} from './format.js';
import {LoadView} from './load_view.js';
import {LogView, welcomeView} from './log_view.js';
import {Panel} from './panel.js';
import {ServerStatus} from './server_status.js';
import {NO_SETTINGS, type Settings} from './settings.js';
import {SettingsView} from './settings_view.js';
import {Sidebar} from './sidebar.js';
import {isBlocked} from './storage.js';

// Replies are drawn and kept this often while they grow: the CPU is the model's too.
const DRAW_MS = 50, KEEP_MS = 3000;

interface Running {
  reply: Reply;
  progress: Progress;
  abort: AbortController;
}

export class App {
  private conversations = loadConversations();
  private current = this.conversations[0] ?? newConversation(NO_SETTINGS);
  private readonly running = new Map<string, Running>();
  private readonly log = new LogView({
    edit: (message, text) => this.edit(message, text),
    regenerate: reply => this.regenerate(reply),
    repeat: (reply, show) => void this.repeat(reply, show),
    sendResults: (reply, results) => this.sendResults(reply, results),
    openSettings: key => {
      this.panel.open('settings');
      this.settings.focus(key);
    },
  });
  private readonly composer = new Composer({
    send: text => this.send(text),
    stop: () => this.stop(),
    editLast: () => this.editLast(),
  });
  private readonly sidebar = new Sidebar({
    choose: id => this.choose(id),
    create: () => this.create(),
    remove: conversation => void this.remove(conversation),
    removeAll: () => void this.removeAll(),
  });
  private readonly settings = new SettingsView(settings => this.changeSettings(settings));
  private readonly load = new LoadView();
  private readonly panel = new Panel(tab => tab === 'load' ? this.load.start() : this.load.stop());
  private readonly server = new ServerStatus(() => this.showServer());

  start(): void {
    byId('model-chip').addEventListener('click', () => this.panel.open('model'));
    addEventListener('storage', event => {
      const changed = event.key === null ? this.conversations.map(one => one.id) : [conversationOfKey(event.key)];
      for (const id of changed) if (id !== undefined) this.reload(id);
    });
    addEventListener('pagehide', () => {
      for (const id of this.running.keys()) this.keep(this.find(id));
    });
    this.server.start();
    this.showServer();
    this.showAll();
    this.composer.focus();
  }

  // ---- Conversations

  private find(id: string): Conversation | undefined {
    return this.current.id === id ? this.current : this.conversations.find(one => one.id === id);
  }

  private create(): void {
    if (this.current.messages.length > 0) this.current = newConversation(this.current.settings);
    this.showAll();
    this.composer.focus();
  }

  private choose(id: string): void {
    const chosen = this.find(id);
    if (!chosen) return;
    this.current = chosen;
    this.showAll();
    this.composer.focus();
  }

  private async remove(conversation: Conversation): Promise<void> {
    if (!await confirmDelete('Delete this conversation?', conversation.title)) return;
    deleteConversation(conversation.id);
    this.forget(conversation.id);
    this.showAll();
  }

  private async removeAll(): Promise<void> {
    const question = `Delete ${plural(this.conversations.length, 'conversation')}?`;
    if (!await confirmDelete(question, 'They are in this browser only: there is no way back.')) return;
    for (const {id} of [...this.conversations]) {
      deleteConversation(id);
      this.forget(id);
    }
    this.showAll();
  }

  // It is no longer kept: ends what is being written in it too.
  private forget(id: string): void {
    this.running.get(id)?.abort.abort();
    this.running.delete(id);
    this.conversations = this.conversations.filter(one => one.id !== id);
    if (this.current.id === id) this.current = newConversation(this.current.settings);
  }

  // Another tab wrote this conversation, or deleted it. What is open stays as it is unless it is the one.
  private reload(id: string): void {
    const wasOpen = this.current.id === id;
    const kept = loadConversation(id);
    if (!kept) this.forget(id);
    else if (this.running.has(id)) return;  // what is being written here is newer
    else {
      this.conversations = [kept, ...this.conversations.filter(one => one.id !== id)].sort(newestFirst);
      if (wasOpen) this.current = kept;
    }
    if (wasOpen) this.showAll();
    else this.showSidebar();
  }

  private keep(conversation: Conversation | undefined): void {
    if (!conversation) return;
    conversation.updated = Date.now();
    this.conversations = [conversation, ...this.conversations.filter(one => one.id !== conversation.id)].sort(newestFirst);
    if (!saveConversation(conversation)) this.banner('This browser keeps no more: delete old conversations.');
    else if (isBlocked) this.banner('This browser keeps nothing for this page: its conversations end with the tab.');
  }

  private changeSettings(settings: Settings): void {
    this.current.settings = settings;
    if (this.current.messages.length > 0) saveConversation(this.current);
  }

  // ---- Messages

  private send(text: string): void {
    const {current} = this;
    if (current.title === UNTITLED) current.title = titleOf(text);
    current.messages.push({role: 'user', content: text});
    this.reply(current);
  }

  private edit(message: UserMessage, text: string): void {
    const {current} = this;
    const index = current.messages.indexOf(message);
    if (index < 0 || this.running.has(current.id)) return;
    current.messages.splice(index);
    if (index === 0) current.title = titleOf(text);
    current.messages.push({role: 'user', content: text});
    this.reply(current);
    this.composer.focus();
  }

  private editLast(): void {
    const edits = byId('log').querySelectorAll<HTMLElement>('.user .tools button:last-child');
    edits[edits.length - 1]?.click();
  }

  private regenerate(reply: Reply): void {
    const {current} = this;
    const index = current.messages.indexOf(reply);
    if (index < 0 || this.running.has(current.id)) return;
    current.messages.splice(index);
    this.reply(current);
    this.composer.focus();
  }

  private sendResults(reply: Reply, results: ToolResult[]): void {
    const {current} = this;
    if (current.messages.at(-1) !== reply || this.running.has(current.id)) return;
    current.messages.push(...results);
    this.reply(current);
    this.composer.focus();
  }

  private stop(): void {
    this.running.get(this.current.id)?.abort.abort();
  }

  // Asks for the next reply of a conversation and writes it at its end.
  private reply(conversation: Conversation): void {
    const fields = this.settings.fields(conversation.settings);
    if (typeof fields === 'string') {
      const reply = emptyReply('', {});
      reply.end = 'error';
      reply.error = {message: 'A setting is not what it should be.', status: 400, code: '', param: fields};
      conversation.messages.push(reply);
      this.keep(conversation);
      this.showAll();
      this.panel.open('settings');
      this.settings.focus(fields);
      return;
    }
    const before = [...conversation.messages];
    const model = this.server.model?.id;
    const reply = emptyReply(conversation.settings.system, {...(model === undefined ? {} : {model}), ...fields});
    conversation.messages.push(reply);
    const running = {reply, progress: {begin: performance.now(), numTokens: 0, numPromptTokens: 0}, abort: new AbortController()};
    this.running.set(conversation.id, running);
    this.keep(conversation);
    this.showAll();
    this.log.scrollToEnd();
    announce('The reply begins');
    void this.write(conversation, before, running);
  }

  private async write(conversation: Conversation, before: Conversation['messages'], running: Running): Promise<void> {
    const {reply, progress, abort} = running;
    const draw = (): void => this.drawProgress(conversation, running);
    let keptAt = performance.now();
    const timer = setInterval(() => {
      draw();
      if (performance.now() - keptAt < KEEP_MS) return;
      keptAt = performance.now();
      saveConversation(conversation);
    }, DRAW_MS);
    draw();
    let needsKey = false;
    try {
      await streamReply(before, reply, progress, abort.signal);
    } catch (error) {
      if (abort.signal.aborted) {
        reply.end = 'stopped';
      } else {
        reply.end = 'error';
        reply.error = error instanceof ApiError
            ? {message: error.message, status: error.status, code: error.code, param: error.param,
               numPromptTokens: error.numPromptTokens, window: error.window}
            : {message: String(error), status: 0, code: '', param: ''};
        needsKey = reply.error.status === 401;
        this.server.pollNow();
      }
    }
    clearInterval(timer);
    if (this.running.get(conversation.id) !== running) return;  // deleted meanwhile
    this.running.delete(conversation.id);
    if (needsKey && await askForKey()) {
      conversation.messages.pop();
      this.server.pollNow();
      this.reply(conversation);
      return;
    }
    this.keep(conversation);
    announce(reply.error ? 'The reply failed' : reply.facts ? `The reply has ended, ${plural(reply.facts.completionTokens, 'token')}` : 'Stopped');
    this.showSidebar();
    if (conversation !== this.current) return;
    // Only that reply: elsewhere on the page something may be selected, unfolded or being edited.
    this.log.finish(reply);
    this.composer.showRunning(false);
    this.showContext();
  }

  private drawProgress(conversation: Conversation, running: Running): void {
    if (conversation !== this.current) return;
    this.log.progress(running.reply, running.progress);
    this.showContext();
  }

  private async repeat(
      reply: Reply, show: (text: string, kind: 'busy' | 'equal' | 'different' | 'failed') => void): Promise<void> {
    const {current} = this;
    const before = current.messages.slice(0, current.messages.indexOf(reply));
    show('Asking again with the same seed, without the prefix cache and not streamed …', 'busy');
    try {
      const again = await repeatReply(before, reply, new AbortController().signal);
      if (again.isEqual) show(`Equal: the same ${plural(again.numTokens, 'token')} again, without the prefix cache and not streamed.`, 'equal');
      else show(`Different: ${plural(again.numTokens, 'token')} with hash ${again.tokenSha.slice(0, 8)}. Is another model or build served now?`, 'different');
    } catch (error) {
      show(`Could not be repeated: ${error instanceof Error ? error.message : String(error)}`, 'failed');
    }
  }

  // ---- What is shown

  private showAll(): void {
    const {current} = this;
    const running = this.running.get(current.id);
    byId('title').textContent = current.title;
    document.title = current.messages.length > 0 ? `${current.title} – Invar` : 'Invar';
    this.showSidebar();
    this.log.show(current, running?.reply, this.welcome());
    if (running) this.log.progress(running.reply, running.progress);
    this.settings.show(current.settings);
    this.composer.showRunning(running !== undefined);
    this.showContext();
  }

  private showSidebar(): void {
    this.sidebar.show(this.conversations, this.current.id, new Set(this.running.keys()));
  }

  private showContext(): void {
    const progress = this.running.get(this.current.id)?.progress;
    const used = progress?.numPromptTokens ? progress.numPromptTokens + progress.numTokens : undefined;
    const window = this.server.model?.meta?.n_ctx ?? this.server.model?.max_model_len;
    this.composer.showContext(this.current, used, window);
  }

  private welcome(): HTMLElement {
    const model = this.server.model;
    const meta = model?.meta;
    if (!model || !meta) return welcomeView('Invar', []);
    return welcomeView(model.id, [
      [meta.family, meta.quantization, meta.n_ctx && `${count(meta.n_ctx)} tokens of context`,
       [meta.backend, meta.isa].filter(Boolean).join(' '), meta.arithmetic_id && `arithmetic ${meta.arithmetic_id}`]
          .filter(Boolean).join('\u00a0· '),
      'Each reply shows its seed and the hash of its tokens. The same request with the same seed gives the same tokens; the = under a reply tries it.',
    ]);
  }

  private showServer(): void {
    const {status, model} = this.server;
    const name = status.kind === 'ready' ? model?.id ?? 'no key' : status.kind === 'down' ? 'offline' : status.kind;
    byId('status-dot').className = `dot ${status.kind}`;
    byId('model-name').textContent = name;
    byId('model-chip').setAttribute('aria-label', `Model: ${name}`);
    const progress = status.kind === 'loading' && status.progress !== undefined ? ` ${Math.round(status.progress * 100)} %` : '';
    this.banner(status.kind === 'loading' ? `The model is loading: ${status.phase}${progress}` : status.kind === 'down' ? status.message : '');
    this.composer.showObstacle(status.kind === 'loading' ? 'The model is still loading' : status.kind === 'down' ? 'The server is not there' : '');
    this.settings.showModel(model);
    showFacts(model, this.server.version);
    if (this.current.messages.length === 0) this.log.show(this.current, undefined, this.welcome());
    this.showContext();
  }

  private banner(text: string): void {
    const banner = byId('banner');
    banner.hidden = text === '';
    banner.textContent = text;
  }
}

function emptyReply(system: string, fields: Record<string, unknown>): Reply {
  return {role: 'assistant', content: '', reasoning: '', toolCalls: [], system, fields, end: ''};
}
