/**
 * Libraries of figures, found in the notebook that they are in: a cell that is out of sight may have no frame to ask.
 *
 * What a frame lacks is read from its own markup, where the library's place is empty and has its hash. A frame looks at
 * the hash of what it gets.
 */

import type { CodeCellModel } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

/** Libraries that one frame is given. */
const MAX_LIBRARIES = 8;
/** Places of libraries that are looked at in one frame's markup. */
const PLACES = 100;
/** How a place is marked in the markup of a frame, and in an output, where it is escaped once more. */
const OF_FRAME = /data-packed=&quot;([0-9a-f]{64}):/g;
const OF_OUTPUT = /data-packed=&amp;quot;([0-9a-f]{64}):/g;

/** Send a frame of a notebook's output all libraries that it lacks and that some output of the notebook has. */
export function giveLibraries(frame: HTMLIFrameElement, notebooks: INotebookTracker): void {
  const panel = notebooks.find(one => one.node.contains(frame));
  const lacks = panel ? lacking(frame.srcdoc) : new Set<string>();
  if (panel && lacks.size > 0) {
    for (const [name, code] of found(panel, lacks)) {
      frame.contentWindow?.postMessage({ sandboxKernelOf: name, sandboxKernelCode: code }, '*');
    }
  }
}

function lacking(markup: string): Set<string> {
  const names = new Set<string>();
  let places = 0;
  for (const { 1: name, index } of markup.matchAll(OF_FRAME)) {
    places += 1;
    if (places > PLACES || names.size >= MAX_LIBRARIES) {
      break;
    }
    if (name !== undefined && after(markup, index) === '') {
      names.add(name);
    }
  }
  return names;
}

/** The packed texts under these names, each as it is written in some output of the notebook. */
function found(panel: NotebookPanel, names: Set<string>): Map<string, string> {
  const codes = new Map<string, string>();
  for (const cell of panel.content.model?.cells ?? []) {
    const outputs = cell.type === 'code' ? (cell as CodeCellModel).outputs : null;
    for (let number = 0; number < (outputs?.length ?? 0); number += 1) {
      const html = outputs?.get(number).data['text/html'];
      const source = Array.isArray(html) ? html.join('') : html;
      const seen = new Set<string>();
      for (const { 1: name, index } of typeof source === 'string' ? source.matchAll(OF_OUTPUT) : []) {
        // Each name once: what stands after a mark may be far away.
        if (name !== undefined && names.has(name) && !codes.has(name) && !seen.has(name)) {
          seen.add(name);
          const code = after(source as string, index);
          if (code !== '') {
            codes.set(name, code);
          }
        }
      }
    }
    if (codes.size === names.size) {
      break;
    }
  }
  return codes;
}

/** What stands between the end of the tag at a place and the next one. */
function after(markup: string, place: number): string {
  const start = markup.indexOf('>', place) + 1;
  return start > 0 ? markup.slice(start, markup.indexOf('<', start)) : '';
}
