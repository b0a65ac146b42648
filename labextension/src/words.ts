/** What is shown of a sandbox, in words. Pure. */

import type { About, Behaviour, State } from './parse';

export function bytes(value: number | null): string {
  if (value === null) {
    return '?';
  }
  let rest = value;
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (rest < 1024) {
      return `${unit === 'B' || rest >= 100 ? Math.round(rest) : Number(rest.toFixed(1))} ${unit}`;
    }
    rest /= 1024;
  }
  return `${Number(rest.toFixed(1))} TiB`;
}

export function duration(value: number | null): string {
  if (value === null) {
    return '?';
  }
  const whole = Math.round(value);
  if (whole < 60) {
    return `${whole} s`;
  }
  if (whole < 3600) {
    return whole < 600 && whole % 60 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.round(whole / 60)} min`;
  }
  return `${Number((whole / 3600).toFixed(1))} h`;
}

function network(about: About): string {
  if (about.network.length === 0) {
    return 'no network';
  }
  return about.network.length === 1 ? '1 network rule' : `${about.network.length} network rules`;
}

function left(state: State): string {
  if (state.state === 'busy') {
    return state.cellSeconds === null ? 'cell runs' : `cell has ${duration(state.cellSeconds)}`;
  }
  return state.idleSeconds === null ? '' : `ends in ${duration(state.idleSeconds)} if unused`;
}

/** One line: what it uses, how long it has, what it may reach. */
export function line(about: About, state: State | null): string {
  if (state === null) {
    return 'Sandbox: no answer';
  }
  if (state.state === 'none') {
    return state.problem === '' ? 'Sandbox: none yet' : 'Sandbox: ended';
  }
  if (state.state === 'starting') {
    return 'Sandbox: starting';
  }
  const used = `${bytes(state.memoryBytes)} of ${bytes(about.memoryBytes)}`;
  return [`Sandbox: ${used}`, left(state), network(about)].filter(part => part !== '').join(' · ');
}

export function behaviourLine(said: Behaviour): string {
  return `Behaviour: ${said.score} of 100 points, ${said.safe ? 'safe' : 'not safe'}`;
}

/** Rows of a name and a value each. */
export function rows(about: About, state: State | null): [string, string][] {
  const now = state !== null && (state.state === 'idle' || state.state === 'busy') ? state : null;
  const of = (used: number | null | undefined, limit: number | null) =>
    now === null ? `${bytes(limit)} at most` : `${bytes(used ?? null)} of ${bytes(limit)}`;
  const result: [string, string][] = [
    ['State', state === null ? 'no answer' : state.state],
    ['Memory', of(now?.memoryBytes, about.memoryBytes)],
    ['Files', of(now?.scratchBytes, about.scratchBytes)],
    ['Processors', about.cpus === null ? '?' : String(about.cpus)],
    ['Time of a cell', `${duration(about.cellSeconds)} at most${now?.cellSeconds == null ? '' : `, ${duration(now.cellSeconds)} left`}`],
    ['Unused', `ends after ${duration(about.idleSeconds)}${now?.idleSeconds == null ? '' : `, in ${duration(now.idleSeconds)}`}`],
    ['Network', about.network.length === 0 ? 'none' : about.network.join(', ')],
    ['Secrets', about.secrets.length === 0 ? 'none' : about.secrets.join(', ')],
    ['Outputs', about.outputs]
  ];
  if (state !== null && state.problem !== '') {
    result.push(['Ended', state.problem]);
  }
  return result;
}
