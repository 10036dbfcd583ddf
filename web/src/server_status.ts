// Whether the server is there and ready, and what it serves. Asks /health until it is ready, then now
// and then, with /v1/models.
import {ApiError, getJson} from './api.js';
import {askForKey} from './dialogs.js';

export interface Device {
  name: string;
  layers: number;
  why: string;
}

// What /v1/models says beside the names; anything may be missing in a version that does not know it.
export interface ModelMeta {
  n_ctx?: number;
  n_ctx_train?: number;
  n_ctx_source?: string;
  n_vocab?: number;
  n_embd?: number;
  n_layer?: number;
  n_params?: number;
  size?: number;
  family?: string;
  quantization?: string;
  file?: string;
  model_sha?: string;
  arithmetic_id?: string;
  backend?: string;
  isa?: string;
  devices?: Device[];
  kv_type?: string;
  block_size?: number;
  num_blocks?: number;
  max_sequences?: number;
  drafter?: string | null;
  drafter_why?: string;
  chat_template?: {source?: string; tools?: boolean; reasoning?: boolean} | null;
  default_sampling?: Record<string, number>;
}

export interface Model {
  id: string;
  max_model_len?: number;
  meta: ModelMeta | null;
}

export type Status =
    | {kind: 'connecting'}
    | {kind: 'loading'; phase: string; progress: number | undefined}
    | {kind: 'ready'}
    | {kind: 'down'; message: string};

const SOON_MS = 700, LATER_MS = 15_000;

export class ServerStatus {
  status: Status = {kind: 'connecting'};
  model: Model | undefined;
  version: string | undefined;
  private timer = 0;
  private askedForKey = false;

  constructor(private readonly changed: () => void) {}

  start(): void {
    void this.poll();
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) this.pollNow();
    });
  }

  pollNow(): void {
    clearTimeout(this.timer);
    void this.poll();
  }

  private async poll(): Promise<void> {
    const before = JSON.stringify([this.status, this.model, this.version]);
    try {
      this.status = await health();
      // Each time: a server that was started again may serve another model.
      if (this.status.kind === 'ready') await this.readModel();
      if (this.status.kind === 'down') this.model = undefined;
    } catch (error) {
      this.status = {kind: 'down', message: error instanceof ApiError ? error.message : String(error)};
      this.model = undefined;
    }
    if (JSON.stringify([this.status, this.model, this.version]) !== before) this.changed();
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.poll(), this.status.kind === 'ready' || document.hidden ? LATER_MS : SOON_MS);
  }

  private async readModel(): Promise<void> {
    try {
      this.model = (await getJson<{data: Model[]}>('v1/models')).data[0];
      this.version = (await getJson<{version: string}>('version')).version;
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 401)) throw error;
      this.model = undefined;
      // Asked once unbidden; later, when a message is sent.
      if (this.askedForKey) return;
      this.askedForKey = true;
      void askForKey().then(given => {
        if (!given) return;
        this.askedForKey = false;
        this.pollNow();
      });
    }
  }
}

// /health is open and says 503 with more in the body than an error.
async function health(): Promise<Status> {
  let response: Response;
  try {
    response = await fetch('health', {cache: 'no-store', credentials: 'omit'});
  } catch {
    return {kind: 'down', message: 'The server does not answer. Is `invar serve` running?'};
  }
  if (response.ok) return {kind: 'ready'};
  const body = await response.json().catch(() => ({})) as
      {status?: string; phase?: string; progress?: number; error?: {message?: string}};
  if (body.status === 'loading') return {kind: 'loading', phase: body.phase ?? '', progress: body.progress};
  return {kind: 'down', message: body.error?.message ?? `The server answered with status ${response.status}.`};
}
