// What is served and where it runs, as /v1/models says: nothing falls back without a reason shown.
import {byId, el} from './dom.js';
import {bytes, count, parameters} from './format.js';
import type {Model} from './server_status.js';

type Row = [string, string | number | undefined | null];

function list(rows: readonly Row[]): HTMLElement {
  const node = el('dl', {class: 'facts-list'});
  for (const [name, value] of rows)
    if (value !== undefined && value !== null && value !== '') node.append(el('dt', {}, name), el('dd', {}, String(value)));
  return node;
}

const SOURCES: Record<string, string> = {checkpoint: 'as trained', flag: 'by --ctx-size', auto: 'what fits in memory'};

export function showFacts(model: Model | undefined, version: string | undefined): void {
  const view = byId('view-model');
  const meta = model?.meta;
  if (!model || !meta) {
    view.replaceChildren(el('p', {class: 'note'}, 'Nothing is known yet: the model is not loaded, or the key is missing.'));
    return;
  }
  const window = meta.n_ctx ?? model.max_model_len;
  const template = meta.chat_template;
  view.replaceChildren(
      el('h2', {}, model.id),
      list([
        ['Family', meta.family],
        ['Weights', meta.quantization],
        ['Parameters', meta.n_params === undefined ? undefined : parameters(meta.n_params)],
        ['File', meta.file],
        ['Size', meta.size === undefined ? undefined : bytes(meta.size)],
        ['Layers', meta.n_layer],
        ['Vocabulary', meta.n_vocab === undefined ? undefined : count(meta.n_vocab)],
        ['Window', window === undefined ? undefined : `${count(window)} tokens, ${SOURCES[meta.n_ctx_source ?? ''] ?? meta.n_ctx_source ?? ''}`],
        ['Chat template', template === undefined ? undefined : template === null ? 'none: chat is refused' : `from ${template.source ?? 'the model'}`],
        ['Tools', template?.tools === undefined ? undefined : template.tools ? 'yes' : 'no'],
        ['Reasoning', template?.reasoning === undefined ? undefined : template.reasoning ? 'yes' : 'no'],
      ]),
      el('h3', {}, 'Exactness'),
      list([
        ['Arithmetic', meta.arithmetic_id],
        ['Model hash', meta.model_sha],
      ]),
      el('p', {class: 'note'}, 'Equal arithmetic, model hash, messages, settings and seed give equal tokens: alone or in company, from the cache or not, on any instruction set.'),
      el('h3', {}, 'Where it runs'),
      list([
        ['Backend', meta.backend],
        ['Instructions', meta.isa],
        ...(meta.devices ?? []).map((device): Row => [device.name, `${device.layers} layers${device.why ? `: ${device.why}` : ''}`]),
        ['Drafter', meta.drafter === undefined ? undefined : `${meta.drafter ?? 'none'}${meta.drafter_why ? `: ${meta.drafter_why}` : ''}`],
        ['At once', meta.max_sequences === undefined ? undefined : `${meta.max_sequences} sequences`],
        ['Keys and values', meta.kv_type],
        ['Server', version === undefined ? undefined : `Invar ${version}`],
      ]),
      el('p', {class: 'note'}, 'The page uses marked, DOMPurify and highlight.js: ', el('a', {href: 'licenses.txt', target: '_blank'}, 'their licences'), '.'));
}
