// From a conversation to the body of /v1/chat/completions, and from its stream to a reply.
import {ApiError, apiError, events, post} from './api.js';
import type {Message, Reply, ReplyFacts} from './conversation.js';

type WireMessage = Record<string, unknown>;

export function wireMessages(system: string, messages: readonly Message[]): WireMessage[] {
  const wire: WireMessage[] = [];
  if (system.trim()) wire.push({role: 'system', content: system});
  for (const message of messages) {
    if (message.role === 'user') {
      wire.push({role: 'user', content: message.content});
    } else if (message.role === 'tool') {
      wire.push({role: 'tool', tool_call_id: message.toolCallId, content: message.content});
    } else if (message.content || message.reasoning || message.toolCalls.length > 0) {
      const one: WireMessage = {role: 'assistant', content: message.content};
      if (message.reasoning) one['reasoning_content'] = message.reasoning;
      if (message.toolCalls.length > 0)
        one['tool_calls'] = message.toolCalls.map(call => ({
          id: call.id, type: 'function', function: {name: call.name, arguments: call.arguments},
        }));
      wire.push(one);
    }
  }
  return wire;
}

// What is known of a reply that is being written; times of performance.now().
export interface Progress {
  begin: number;
  firstToken?: number;
  lastToken?: number;
  numTokens: number;
  numPromptTokens: number;
}

interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: {cached_tokens?: number};
  completion_tokens_details?: {reasoning_tokens?: number};
}

interface Chunk {
  model?: string;
  choices?: {
    delta?: {
      content?: string | null;
      reasoning_content?: string | null;
      tool_calls?: {index: number; id?: string; function?: {name?: string; arguments?: string}}[];
    };
    message?: unknown;
    finish_reason?: string | null;
  }[];
  usage?: Usage | null;
  timings?: {predicted_per_second?: number; ttft_ms?: number};
  invar?: {
    arithmetic_id?: string;
    model_sha?: string;
    seed?: number;
    token_sha?: string[];
    warnings?: {message?: string}[];
  };
  error?: {message?: string; code?: string | null; param?: string | null};
}

function factsOf(chunk: Chunk, model: string): ReplyFacts | undefined {
  if (!chunk.invar || !chunk.usage) return undefined;
  const {usage, timings, invar} = chunk;
  return {
    model,
    promptTokens: usage.prompt_tokens,
    cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
    completionTokens: usage.completion_tokens,
    reasoningTokens: usage.completion_tokens_details?.reasoning_tokens ?? 0,
    tokensPerSecond: timings?.predicted_per_second ?? 0,
    ttftMs: timings?.ttft_ms ?? 0,
    seed: invar.seed ?? 0,
    tokenSha: invar.token_sha?.[0] ?? '',
    arithmeticId: invar.arithmetic_id ?? '',
    modelSha: invar.model_sha ?? '',
    warnings: (invar.warnings ?? []).map(warning => warning.message ?? ''),
  };
}

// Writes into `reply` and `progress` as chunks come. Throws ApiError, or AbortError when `signal` said
// so; what came until then stays.
export async function streamReply(
    messages: readonly Message[], reply: Reply, progress: Progress, signal: AbortSignal): Promise<void> {
  const response = await post('v1/chat/completions', {
    ...reply.fields,
    messages: wireMessages(reply.system, messages),
    stream: true,
    stream_options: {include_usage: true, continuous_usage_stats: true},
  }, signal);
  if (!response.body) throw new ApiError('The server sent no stream.', response.status);
  let isComplete = false;
  let model = '';
  for await (const data of events(response.body)) {
    if (data === '[DONE]') {
      isComplete = true;
      break;
    }
    const chunk = JSON.parse(data) as Chunk;
    if (chunk.error) throw apiError(chunk.error, response.status);
    model = chunk.model ?? model;
    take(chunk, reply, progress);
    const facts = factsOf(chunk, model);
    if (facts) reply.facts = facts;
  }
  if (!isComplete) throw new ApiError('The connection ended before the reply did.', 0, 'cut_off');
}

function take(chunk: Chunk, reply: Reply, progress: Progress): void {
  const numTokens = chunk.usage?.completion_tokens ?? 0;
  progress.numPromptTokens = chunk.usage?.prompt_tokens ?? progress.numPromptTokens;
  if (numTokens > progress.numTokens) {
    progress.numTokens = numTokens;
    progress.lastToken = performance.now();
    progress.firstToken ??= progress.lastToken;
  }
  const choice = chunk.choices?.[0];
  if (!choice) return;
  reply.content += choice.delta?.content ?? '';
  reply.reasoning += choice.delta?.reasoning_content ?? '';
  for (const piece of choice.delta?.tool_calls ?? []) {
    const call = reply.toolCalls[piece.index] ??= {id: '', name: '', arguments: ''};
    call.id ||= piece.id ?? '';
    call.name ||= piece.function?.name ?? '';
    call.arguments += piece.function?.arguments ?? '';
  }
  if (choice.finish_reason) reply.end = choice.finish_reason as Reply['end'];
}

export interface Comparison {
  isEqual: boolean;
  tokenSha: string;
  numTokens: number;
}

// Asks for a finished reply again in another way: its seed, not streamed, nothing from the prefix
// cache, no drafting. Exactness says that its tokens are the same.
export async function repeatReply(
    before: readonly Message[], reply: Reply, signal: AbortSignal): Promise<Comparison> {
  if (!reply.facts) throw new ApiError('This reply has no token_sha to compare with.', 0);
  const response = await post('v1/chat/completions', {
    ...reply.fields,
    messages: wireMessages(reply.system, before),
    seed: reply.facts.seed,
    cache_prompt: false,
    speculative: false,
  }, signal);
  const again = factsOf(await response.json() as Chunk, reply.facts.model);
  if (!again?.tokenSha) throw new ApiError('The server reports no token_sha.', response.status);
  return {
    isEqual: again.tokenSha === reply.facts.tokenSha,
    tokenSha: again.tokenSha,
    numTokens: again.completionTokens,
  };
}
