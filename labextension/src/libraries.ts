/**
 * Libraries of figures, found in the notebook that they are in: a cell that is out of sight may have no frame to ask.
 *
 * A frame names what it needs by its hash, and looks at the hash of what it gets. It is answered only if it lies in an
 * output of a notebook, from that notebook, and so many times.
 */

import type { CodeCellModel } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import { FRAMES } from './frames';
import { record } from './said';

const MOST = 8;
const NAME = /^[0-9a-f]{64}$/;

export function giveLibraries(notebooks: INotebookTracker): void {
  const asked = new WeakMap<object, number>();
  window.addEventListener('message', event => {
    const name = record(event.data)['sandboxKernelWant'];
    const { source } = event;
    if (source === null || typeof name !== 'string' || !NAME.test(name)) {
      return;
    }
    const count = asked.get(source) ?? 0;
    if (count >= MOST) {
      return;
    }
    asked.set(source, count + 1);
    const all = [...document.querySelectorAll<HTMLIFrameElement>(FRAMES)];
    const frame = all.find(one => one.contentWindow === source);
    const panel = frame && notebooks.find(one => one.node.contains(frame));
    const code = panel && found(panel, name);
    if (code) {
      (source as Window).postMessage({ sandboxKernelOf: name, sandboxKernelCode: code }, '*');
    }
  });
}

/** The packed text under a name, as it is written in some output of the notebook. */
function found(panel: NotebookPanel, name: string): string {
  const mark = `data-packed=&amp;quot;${name}:`;
  for (const cell of panel.content.model?.cells ?? []) {
    const outputs = cell.type === 'code' ? (cell as CodeCellModel).outputs : null;
    for (let number = 0; number < (outputs?.length ?? 0); number += 1) {
      const html = outputs?.get(number).data['text/html'];
      const source = Array.isArray(html) ? html.join('') : html;
      const place = typeof source === 'string' ? source.indexOf(mark) : -1;
      if (typeof source === 'string' && place >= 0) {
        const start = source.indexOf('>', place) + 1;
        const code = source.slice(start, source.indexOf('<', start));
        if (start > 0 && code !== '') {
          return code;
        }
      }
    }
  }
  return '';
}
