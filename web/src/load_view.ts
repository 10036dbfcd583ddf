// What the server does now: from /metrics and /v1/requests, once a second while the tab is seen.
// Parts that this server does not have say so.
import {ApiError, call, getJson} from './api.js';
import {byId, el, iconButton} from './dom.js';
import {bytes, count, duration} from './format.js';
import {LineChart} from './line_chart.js';
import {parseMetrics, type Samples} from './metrics.js';

const INTERVAL_MS = 1000, HISTORY = 120;

interface RequestEntry {
  id: string;
  endpoint: string;
  state: string;
  prompt_tokens: number;
  prefilled_tokens?: number;
  completion_tokens: number;
  age_ms: number;
}

export class LoadView {
  private readonly tiles = el('div', {class: 'tiles'});
  private readonly output = new LineChart('Output', 'tokens/s', HISTORY);
  private readonly input = new LineChart('Prompts', 'tokens/s', HISTORY);
  private readonly running = new LineChart('Running', 'sequences', HISTORY);
  private readonly charts = el('div', {class: 'charts'}, this.output.element, this.input.element, this.running.element);
  private readonly requests = el('div', {class: 'requests'});
  private readonly problem = el('p', {class: 'note', hidden: true});
  // Of the requests that are shown, in order: a row stays while its request runs, as somebody may be
  // about to press its button.
  private rows: {id: string; cells: HTMLElement[]}[] = [];
  private before: {samples: Samples; at: number} | undefined;
  private timer = 0;

  constructor() {
    byId('view-load').append(this.problem, this.tiles, this.charts, el('h3', {}, 'Requests'), this.requests);
  }

  start(): void {
    this.stop();
    this.timer = window.setInterval(() => {
      if (!document.hidden) void this.refresh();
    }, INTERVAL_MS);
    void this.refresh();
  }

  stop(): void {
    clearInterval(this.timer);
    this.before = undefined;  // a rate over the pause would be none
  }

  private async refresh(): Promise<void> {
    const [metrics, requests] = await Promise.allSettled([
      call('metrics').then(response => response.text()), getJson<{data: RequestEntry[]}>('v1/requests'),
    ]);
    if (metrics.status === 'fulfilled') this.showMetrics(parseMetrics(metrics.value));
    else this.before = undefined;
    this.tiles.hidden = this.charts.hidden = metrics.status === 'rejected';
    this.problem.hidden = metrics.status === 'fulfilled';
    if (metrics.status === 'rejected') this.problem.textContent = because('/metrics', metrics.reason);
    if (requests.status === 'fulfilled') this.showRequests(requests.value.data);
    else this.showNoRequests(because('/v1/requests', requests.reason));
  }

  private showMetrics(samples: Samples): void {
    const at = performance.now();
    const value = (name: string): number | undefined => samples.get(`invar_${name}`);
    const perSecond = (name: string): number => {
      const now = value(name), last = this.before?.samples.get(`invar_${name}`);
      if (now === undefined || last === undefined || this.before === undefined) return 0;
      return Math.max(0, now - last) * 1000 / (at - this.before.at);
    };
    if (this.before) {
      this.output.add(perSecond('generation_tokens_total'));
      this.input.add(perSecond('prompt_tokens_total'));
      this.running.add(value('requests_running') ?? 0);
    }
    const usage = value('kv_cache_usage_ratio');
    const memory = samples.get('process_resident_memory_bytes');
    const hits = value('prefix_cache_hits_total'), queries = value('prefix_cache_queries_total');
    this.tiles.replaceChildren(
        tile('Running', value('requests_running'), count),
        tile('Waiting', value('requests_waiting'), count),
        tile('Keys and values used', usage, part => `${(part * 100).toFixed(1)} %`, usage),
        tile('Prefix cache hits', queries ? (hits ?? 0) / queries : undefined, part => `${(part * 100).toFixed(0)} %`),
        tile('Tokens so far', value('generation_tokens_total'), count),
        tile('Memory', memory, bytes));
    this.before = {samples, at};
  }

  private showRequests(entries: readonly RequestEntry[]): void {
    if (entries.length === 0) return this.showNoRequests('None now.');
    if (entries.length !== this.rows.length || entries.some(({id}, index) => id !== this.rows[index]?.id)) {
      const head = el('tr', {}, ...['State', 'Prompt', 'Output', 'Age', ''].map(text => el('th', {scope: 'col'}, text)));
      this.rows = entries.map(({id}) => ({id, cells: [el('td'), el('td'), el('td'), el('td')]}));
      this.requests.replaceChildren(el('table', {}, el('thead', {}, head), el('tbody', {}, ...entries.map(({id, endpoint}, index) =>
          el('tr', {title: `${id}, ${endpoint}`}, ...this.rows[index]?.cells ?? [],
              el('td', {}, iconButton('close', `Cancel ${id}`, () => void this.cancel(id))))))));
    }
    entries.forEach((entry, index) => {
      const isReading = entry.state === 'prefill' && entry.prefilled_tokens !== undefined;
      const texts = [
        entry.state, `${isReading ? `${count(entry.prefilled_tokens ?? 0)} of ` : ''}${count(entry.prompt_tokens)}`,
        count(entry.completion_tokens), duration(entry.age_ms),
      ];
      this.rows[index]?.cells.forEach((cell, column) => cell.textContent = texts[column] ?? '');
    });
  }

  private showNoRequests(why: string): void {
    this.rows = [];
    this.requests.replaceChildren(el('p', {class: 'note'}, why));
  }

  private async cancel(id: string): Promise<void> {
    try {
      await call(`v1/requests/${encodeURIComponent(id)}`, {method: 'DELETE'});
    } catch {
      // It has ended meanwhile; the next list shows it.
    }
    void this.refresh();
  }
}

function tile(name: string, value: number | undefined, show: (value: number) => string, part?: number): HTMLElement {
  const node = el('div', {class: 'tile'}, el('span', {}, name), el('strong', {}, value === undefined ? '–' : show(value)));
  if (part !== undefined) {
    const fill = el('span');
    fill.style.width = `${Math.min(100, part * 100)}%`;
    node.append(el('span', {class: 'gauge'}, fill));
  }
  return node;
}

function because(path: string, reason: unknown): string {
  if (reason instanceof ApiError && reason.status === 404) return `This server has no ${path}.`;
  if (reason instanceof ApiError && reason.status === 401) return `${path} needs the API key.`;
  return `${path}: ${reason instanceof Error ? reason.message : String(reason)}`;
}
