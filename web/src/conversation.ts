// What a conversation is, and where conversations are kept: localStorage, one entry each, so that
// two tabs do not overwrite one another's.
import {NO_SETTINGS, type Settings} from './settings.js';
import {browserStore} from './storage.js';

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

// What the server said of a reply in its last chunk.
export interface ReplyFacts {
  model: string;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  reasoningTokens: number;
  tokensPerSecond: number;
  ttftMs: number;
  seed: number;
  tokenSha: string;
  arithmeticId: string;
  modelSha: string;
  warnings: string[];
}

export interface ReplyError {
  message: string;
  status: number;
  code: string;
  param: string;
  numPromptTokens?: number | undefined;
  window?: number | undefined;
}

export interface UserMessage {
  role: 'user';
  content: string;
}

export interface Reply {
  role: 'assistant';
  content: string;
  reasoning: string;
  toolCalls: ToolCall[];
  // As sent, for repetitions: the system prompt, and the fields beside the messages.
  system: string;
  fields: Record<string, unknown>;
  // '' while it is being written, and for good when the page was closed meanwhile.
  end: '' | 'stop' | 'length' | 'tool_calls' | 'stopped' | 'error';
  facts?: ReplyFacts;
  error?: ReplyError;
}

export interface ToolResult {
  role: 'tool';
  toolCallId: string;
  content: string;
}

export type Message = UserMessage | Reply | ToolResult;

export interface Conversation {
  id: string;
  title: string;
  updated: number;
  settings: Settings;
  messages: Message[];
}

export const UNTITLED = 'New conversation';
const PREFIX = 'invar.conversation.';
const TITLE_LENGTH = 60;

export function newConversation(settings: Settings): Conversation {
  const id = Array.from(crypto.getRandomValues(new Uint8Array(8)), byte => byte.toString(16).padStart(2, '0')).join('');
  return {id, title: UNTITLED, updated: Date.now(), settings: {...settings}, messages: []};
}

export function titleOf(text: string): string {
  const line = text.trim().replace(/\s+/g, ' ');
  return line.length <= TITLE_LENGTH ? line : `${line.slice(0, TITLE_LENGTH - 1).trimEnd()}…`;
}

// Newest first. An entry that cannot be read is left alone: another version may know it.
export function loadConversations(): Conversation[] {
  const all: Conversation[] = [];
  for (let i = 0; i < browserStore.length; ++i) {
    const id = conversationOfKey(browserStore.key(i) ?? '');
    const one = id === undefined ? undefined : loadConversation(id);
    if (one) all.push(one);
  }
  return all.sort(newestFirst);
}

export function loadConversation(id: string): Conversation | undefined {
  try {
    const one = JSON.parse(browserStore.getItem(PREFIX + id) ?? 'null') as Conversation | null;
    if (one?.id === id && Array.isArray(one.messages) && typeof one.settings === 'object' && one.settings !== null)
      return {...one, settings: {...NO_SETTINGS, ...one.settings}};  // an older version knew fewer
  } catch {
    // As if it were not there.
  }
  return undefined;
}

// False: the browser has no room.
export function saveConversation(conversation: Conversation): boolean {
  try {
    browserStore.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
    return true;
  } catch {
    return false;
  }
}

export function deleteConversation(id: string): void {
  browserStore.removeItem(PREFIX + id);
}

// The id of the conversation that is kept under `key`, if one is.
export function conversationOfKey(key: string): string | undefined {
  return key.startsWith(PREFIX) ? key.slice(PREFIX.length) : undefined;
}

export function newestFirst(a: Conversation, b: Conversation): number {
  return b.updated - a.updated;
}
