// Prometheus text, as much of it as the load view needs.

export type Samples = Map<string, number>;

// The sum of each name's samples, whatever their labels; histograms' buckets aside.
export function parseMetrics(text: string): Samples {
  const samples: Samples = new Map();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const match = /^([A-Za-z_:][\w:]*)(\{.*\})?\s+(\S+)/.exec(line);
    if (!match?.[1] || match[1].endsWith('_bucket')) continue;
    const value = Number(match[3]);
    if (Number.isFinite(value)) samples.set(match[1], (samples.get(match[1]) ?? 0) + value);
  }
  return samples;
}
