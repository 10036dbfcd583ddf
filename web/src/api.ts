// Requests to the server that this page came from, and to no other: its key, its errors, its streams.
import {tabStore} from './storage.js';

export class ApiError extends Error {
  constructor(
      message: string, readonly status: number, readonly code = '', readonly param = '',
      readonly numPromptTokens?: number, readonly window?: number) {
    super(message);
  }
}

// Of this tab only, and gone with it.
const KEY = 'invar.key';
export function setKey(typed: string): void {
  const key = typed.replace(/[^\x21-\x7e]/g, '');  // what no key has, and a header cannot hold
  if (key) tabStore.setItem(KEY, key);
  else tabStore.removeItem(KEY);
}
export function hasKey(): boolean {
  return tabStore.getItem(KEY) !== null;
}

// Paths are relative, so that a proxy may serve us below a path of its own.
export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  const key = tabStore.getItem(KEY);
  if (key !== null) headers.set('Authorization', `Bearer ${key}`);
  if (init.body) headers.set('Content-Type', 'application/json');
  let response: Response;
  try {
    response = await fetch(path, {...init, headers, credentials: 'omit', cache: 'no-store'});
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError('The server does not answer.', 0, 'no_answer');
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

export async function getJson<T>(path: string): Promise<T> {
  return (await call(path)).json() as Promise<T>;
}

export function post(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  return call(path, {method: 'POST', body: JSON.stringify(body), ...(signal ? {signal} : {})});
}

interface WireError {
  message?: string;
  code?: string | null;
  param?: string | null;
  n_prompt_tokens?: number;
  n_ctx?: number;
}

export function apiError(wire: WireError, status: number): ApiError {
  return new ApiError(
      wire.message ?? `The server answered with status ${status}.`, status, wire.code ?? '',
      wire.param ?? '', wire.n_prompt_tokens, wire.n_ctx);
}

async function errorOf(response: Response): Promise<ApiError> {
  try {
    const body = await response.json() as {error?: WireError};
    return apiError(body.error ?? {}, response.status);
  } catch {
    return apiError({}, response.status);
  }
}

// The data of each server-sent event, in order. Comments (pings) and other fields are passed over.
export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const {done, value} = await reader.read();
      rest += done ? decoder.decode() : decoder.decode(value, {stream: true});
      for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
        const lines = rest.slice(0, end).split('\n').filter(line => line.startsWith('data:'));
        rest = rest.slice(end + 2);
        if (lines.length > 0) yield lines.map(line => line.slice(5).trimStart()).join('\n');
      }
      if (done) return;
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}
