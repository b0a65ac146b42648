/**
 * What a kernel says, as values: each number of its type and within its range, each text of bounded length, or nothing.
 *
 * Cells run behind the kernel, and a kernel may be another one than it says: nothing of what it sends is used that did
 * not come through here. Pure.
 */

export type Said = Readonly<Record<string, unknown>>;

export const MAX_BYTES = 2 ** 50;
const LONGEST_SECONDS = 1e9;
const LONGEST_PATH = 1024;
const MAX_NAMES = 50;
const LONGEST_NAME = 253;

/** Controls, and what turns the direction of the text around it. */
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

export function record(value: unknown): Said {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Said) : {};
}

/** A text on one line, in which every character can be seen; "" for what is none. */
export function text(value: unknown, longest: number): string {
  return typeof value === 'string' ? value.slice(0, longest).replace(INVISIBLE, '\ufffd') : '';
}

/** A whole number from 0 to `most`; null for all else. */
export function count(value: unknown, most: number): number | null {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= most ? value : null;
}

/** A duration; null for what is none. */
export function seconds(value: unknown): number | null {
  return typeof value === 'number' && value >= 0 && value <= LONGEST_SECONDS ? value : null;
}

function names(value: unknown): string[] {
  const list = Array.isArray(value) ? value.slice(0, MAX_NAMES) : [];
  return list.map(one => text(one, LONGEST_NAME)).filter(one => one !== '');
}

/** The path of a file of scratch, as the kernel takes it back; null for what could not be one. */
export function path(value: unknown): string | null {
  if (typeof value !== 'string' || value.length > LONGEST_PATH || value.search(/[\u0000-\u001f\u007f]/) >= 0) {
    return null;
  }
  const parts = value.split('/');
  return parts.some(part => part === '' || part === '.' || part === '..') ? null : value;
}

/** What a kernel is and allows, of its own word. */
export interface About {
  readonly chunkBytes: number;
  readonly fileBytes: number;
  readonly memoryBytes: number | null;
  readonly scratchBytes: number | null;
  readonly cpus: number | null;
  readonly cellSeconds: number | null;
  readonly idleSeconds: number | null;
  readonly outputs: string;
  /** Whether it is asked about what would be pasted. */
  readonly screens: boolean;
  /** Rules of hosts that cells may reach. */
  readonly network: readonly string[];
  readonly secrets: readonly string[];
}

const CHUNK_BYTES = 2 ** 20;
/** A page holds what it downloads, and reads what it uploads piece by piece. */
export const DOWNLOAD_BYTES = 2 ** 31;

/** Read a kernel_info_reply; null if it is not of our kernel, or of a version that is not known here. */
export function about(info: unknown): About | null {
  const content = record(info);
  const sandbox = record(content['sandbox']);
  const files = record(sandbox['file_messages']);
  const known = files['version'] === 1 && record(sandbox['state_message'])['version'] === 1;
  if (content['implementation'] !== 'sandbox_kernel' || !known) {
    return null;
  }
  const limits = record(sandbox['limits']);
  const outputs = text(sandbox['outputs'], 20);
  return {
    chunkBytes: Math.max(1, count(files['chunk_bytes'], CHUNK_BYTES) ?? CHUNK_BYTES),
    fileBytes: count(limits['file_limit'], MAX_BYTES) ?? DOWNLOAD_BYTES,
    memoryBytes: count(limits['memory'], MAX_BYTES),
    scratchBytes: count(limits['scratch_size'], MAX_BYTES),
    cpus: seconds(limits['cpus']),
    cellSeconds: seconds(limits['cell_timeout']),
    idleSeconds: seconds(limits['idle_timeout']),
    outputs: ['safe', 'strict', 'trusted'].includes(outputs) ? outputs : 'unknown',
    screens: record(sandbox['screen_message'])['version'] === 1,
    network: names(sandbox['network']),
    secrets: names(sandbox['secrets'])
  };
}

export type Standing = 'none' | 'starting' | 'idle' | 'busy';

/** How a sandbox stands, of its kernel's word. */
export interface State {
  readonly state: Standing;
  readonly problem: string;
  readonly idleSeconds: number | null;
  readonly cellSeconds: number | null;
  readonly memoryBytes: number | null;
  readonly scratchBytes: number | null;
  readonly processes: number | null;
  readonly behaviour: Behaviour;
}

/** What cells did that matters, as docs/behaviour.md describes it. */
export interface Behaviour {
  readonly score: number;
  readonly safe: boolean;
  readonly rows: readonly BehaviourRow[];
}

export interface BehaviourRow {
  readonly code: string;
  readonly score: number;
  readonly times: number;
  readonly cell: number | null;
  readonly reason: string;
}

const MAX_ROWS = 200;
const LONGEST_REASON = 500;

function behaviour(value: unknown): Behaviour {
  const said = record(value);
  const rows = Array.isArray(said['rows']) ? said['rows'].slice(0, MAX_ROWS).map(record) : [];
  return {
    score: count(said['risk_score'], 100) ?? 0,
    safe: said['is_safe'] === true,
    rows: rows.map(row => ({
      code: text(row['code'], LONGEST_NAME),
      score: count(row['score'], 100) ?? 0,
      times: count(row['count'], MAX_BYTES) ?? 1,
      cell: count(row['first_cell'], MAX_BYTES),
      reason: text(row['reason'], LONGEST_REASON)
    }))
  };
}

/** Sentences that speak against a text. */
export function reasons(content: Said): string[] {
  const list = Array.isArray(content['reasons']) ? content['reasons'].slice(0, MAX_NAMES) : [];
  return list.map(one => text(one, LONGEST_REASON)).filter(one => one !== '');
}

const STANDINGS: readonly unknown[] = ['none', 'starting', 'idle', 'busy'];

export function state(content: Said): State {
  const standing = content['state'];
  return {
    state: STANDINGS.includes(standing) ? (standing as Standing) : 'none',
    problem: text(content['problem'], 1000),
    idleSeconds: seconds(content['idle_seconds']),
    cellSeconds: seconds(content['cell_seconds']),
    memoryBytes: count(content['memory_bytes'], MAX_BYTES),
    scratchBytes: count(content['scratch_bytes'], MAX_BYTES),
    processes: count(content['processes'], 2 ** 22),
    behaviour: behaviour(content['behaviour'])
  };
}

export interface Entry {
  readonly path: string;
  readonly size: number;
  /** Seconds since 1970; null if it was no time. */
  readonly modified: number | null;
}

/** One page of a list of files, without those whose name or size is none. */
export function page(content: Said, most: number): { files: Entry[]; more: boolean; complete: boolean } {
  const files: Entry[] = [];
  for (const one of Array.isArray(content['files']) ? content['files'].slice(0, most) : []) {
    const entry = record(one);
    const name = path(entry['path']);
    const size = count(entry['size'], MAX_BYTES);
    if (name !== null && size !== null) {
      files.push({ path: name, size, modified: time(entry['modified']) });
    }
  }
  return { files, more: content['more'] === true, complete: content['complete'] === true };
}

function time(value: unknown): number | null {
  return typeof value === 'number' && value >= 0 && value < 2 ** 35 ? value : null;
}

/** The name under which a browser saves a file: one part, nothing hidden, nothing that a system reads as a device. */
export function downloadName(from: string): string {
  const last = from.slice(from.lastIndexOf('/') + 1);
  let name = last.replace(INVISIBLE, '_').replace(/[\\/:*?"<>|]/g, '_');
  name = name.replace(/^[.\s~-]+/, '_').replace(/[.\s]+$/, '');
  if (/^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i.test(name)) {
    name = `_${name}`;
  }
  if (name.length > 120) {
    const dot = name.lastIndexOf('.');
    const ending = dot > 0 && name.length - dot <= 12 ? name.slice(dot) : '';
    name = name.slice(0, 120 - ending.length) + ending;
  }
  return name || 'download';
}
