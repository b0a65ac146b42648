/** Files on their way: each a row with a name, a bar and a way to give it up. Two are moved at a time. */

import { button, element } from './dom';
import { bytes } from './words';
import { Refused, type Progress } from './sandbox';
import { text } from './parse';

const AT_ONCE = 2;
const LONGEST_WHY = 300;

export class Transfers {
  readonly node = element('div', 'sk-Transfers');
  private running = 0;
  private readonly waiting: (() => void)[] = [];

  constructor() {
    this.node.setAttribute('aria-live', 'polite');
  }

  /** Show one transfer until it ends; a row that says why it failed stays until it is closed. True if it was done. */
  async run(name: string, work: (progress: Progress, signal: AbortSignal) => Promise<void>): Promise<boolean> {
    const row = element('div', 'sk-Transfer');
    const label = element('bdi', 'sk-Transfer-name', text(name, 300));
    const bar = element('progress');
    const said = element('span', 'sk-Transfer-said', 'waiting');
    const giveUp = new AbortController();
    const stop = button('×', 'Give it up', () => giveUp.abort());
    bar.setAttribute('aria-label', label.textContent ?? '');
    row.append(label, stop, bar, said);
    this.node.append(row);
    await this.turn();
    try {
      await work((done, total) => {
        bar.max = Math.max(1, total);
        bar.value = total === 0 ? 1 : done;
        said.textContent = `${bytes(done)} of ${bytes(total)}`;
      }, giveUp.signal);
      row.remove();
      return true;
    } catch (error) {
      bar.remove();
      row.classList.add('sk-mod-failed');
      said.textContent = error instanceof Refused ? text(error.message, LONGEST_WHY) : 'it could not be read or written';
      stop.title = 'Close';
      stop.onclick = () => row.remove();
      if (!(error instanceof Refused)) {
        console.error('sandbox-kernel:', error);
      }
      return false;
    } finally {
      this.running -= 1;
      this.waiting.shift()?.();
    }
  }

  private async turn(): Promise<void> {
    while (this.running >= AT_ONCE) {
      await new Promise<void>(resolve => this.waiting.push(resolve));
    }
    this.running += 1;
  }
}
