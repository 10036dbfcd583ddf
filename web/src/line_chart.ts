// Values over time as an SVG line: the newest at the right, zero at the bottom.
import {el, svg} from './dom.js';
import {rate} from './format.js';

const WIDTH = 320, HEIGHT = 84;

// 1, 2 or 5 times a power of ten, at least `value`.
function roundUp(value: number): number {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find(step => step * power >= value) ?? 10) * power;
}

export class LineChart {
  readonly element: HTMLElement;
  private readonly area = svg('path', {class: 'area'});
  private readonly line = svg('path', {class: 'line'});
  private readonly now = el('strong', {});
  private readonly top = el('span', {class: 'chart-top'});
  private readonly drawing: SVGElement;
  private readonly values: number[] = [];

  constructor(private readonly title: string, private readonly unit: string, private readonly length: number) {
    this.drawing = svg('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': title},
        svg('path', {class: 'axis', d: `M0 ${HEIGHT - 0.5}H${WIDTH}M0 0.5H${WIDTH}`}), this.area, this.line);
    this.element = el('figure', {class: 'chart'}, el('figcaption', {}, title, this.now),
        el('div', {class: 'chart-box'}, this.top, this.drawing));
  }

  add(value: number): void {
    this.values.push(value);
    if (this.values.length > this.length) this.values.shift();
    const top = roundUp(Math.max(...this.values));
    const points = this.values.map((each, index) => {
      const x = WIDTH - (this.values.length - 1 - index) * WIDTH / (this.length - 1);
      return `${x.toFixed(1)} ${(HEIGHT - 1 - each / top * (HEIGHT - 4)).toFixed(1)}`;
    });
    this.line.setAttribute('d', `M${points.join('L')}`);
    const first = points[0]?.split(' ')[0] ?? WIDTH;
    this.area.setAttribute('d', `M${first} ${HEIGHT}L${points.join('L')}L${WIDTH} ${HEIGHT}Z`);
    this.now.textContent = `${Number.isInteger(value) ? value : rate(value)} ${this.unit}`;
    this.top.textContent = String(top);
    this.drawing.setAttribute('aria-label', `${this.title}: ${this.now.textContent} now, at most ${rate(Math.max(...this.values))}`);
  }
}
