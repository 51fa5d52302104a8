// Prometheus' text format, as far as the gateway writes it.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

export function parse(page: string): Sample[] {
  const found: Sample[] = [];
  for (const line of page.split("\n")) {
    const match = line.startsWith("#") ? null : LINE.exec(line);
    if (!match) continue;
    const labels: Record<string, string> = {};
    for (const [, name = "", value = ""] of (match[2] ?? "").matchAll(LABEL)) {
      labels[name] = value.replace(/\\(["\\])/g, "$1");
    }
    found.push({ name: match[1] ?? "", labels, value: Number(match[3]) });
  }
  return found;
}

export type Wanted = Record<string, string | undefined>;

function has(sample: Sample, name: string, labels: Wanted): boolean {
  return sample.name === name && Object.entries(labels).every(([key, value]) => sample.labels[key] === value);
}

export function sum(samples: Sample[], name: string, labels: Wanted = {}): number {
  return samples.reduce((total, sample) => total + (has(sample, name, labels) ? sample.value : 0), 0);
}

/** The sums by the value of a label, the largest first. */
export function by(samples: Sample[], name: string, label: string): [string, number][] {
  const sums = new Map<string, number>();
  for (const sample of samples) {
    const key = sample.labels[label];
    if (sample.name === name && key !== undefined) sums.set(key, (sums.get(key) ?? 0) + sample.value);
  }
  return [...sums].sort((a, b) => b[1] - a[1]);
}

/** How much a counter grew between two pages. A process that began anew counts from 0. */
export function growth(before: Sample[], after: Sample[], name: string, labels: Wanted = {}): number {
  const key = (sample: Sample): string => JSON.stringify(sample.labels);
  const old = new Map(before.filter((one) => has(one, name, labels)).map((one) => [key(one), one.value]));
  return after
    .filter((one) => has(one, name, labels))
    .reduce((total, one) => {
      const was = old.get(key(one));
      return total + (was === undefined ? 0 : one.value < was ? one.value : one.value - was);
    }, 0);
}
