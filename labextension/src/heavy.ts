/**
 * Outputs of a sandbox that a browser may need long to lay out are shown in a frame, which Chromium draws in a process
 * apart from the page's: what they cost, they cost the frame.
 *
 * The policy of the kernel bounds what an output may cost, and what is here begins at a small share of that. SVG and
 * Markdown come from it as HTML, so this is all there is. The frame runs no script and loads nothing. It does not know
 * the height of what it shows, so it scrolls, as long outputs do. A program, which only `outputs = trusted` lets pass as
 * it is, stays in the page.
 */

import type { IRenderMime, IRenderMimeRegistry } from '@jupyterlab/rendermime';

const TYPE = 'text/html';
/** Elements, each as often as it spans, and letters: more of them than in a table of 60 rows and 20 columns. */
const MAX_WEIGHT = 3000;
const LETTERS_OF_ELEMENT = 50;
/** Characters of a source that is small, whatever it says that it spans. */
const FEW = 500;
/** What is in a picture is not laid out. */
const PICTURES = /data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*/g;
/** Of a frame, in CSS pixels; it can be dragged. */
const HEIGHT = 480;
const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:";
/** What is in frames of ours, for its programs, is apart already. */
const FRAMED = '<iframe sandbox="allow-scripts"';
const COLOURS = ['--jp-content-font-color1', '--jp-layout-color0', '--jp-rendermime-table-row-background'] as const;

/** Show the heavy outputs of a notebook in frames, while its kernel is a sandbox. */
export function frameHeavy(rendermime: IRenderMimeRegistry, isOurs: () => Promise<boolean>): void {
  const factory = rendermime.getFactory(TYPE);
  if (factory === undefined) {
    return;
  }
  const createRenderer = (options: IRenderMime.IRendererOptions) => {
    const widget = factory.createRenderer(options);
    const render = widget.renderModel.bind(widget);
    let last = 0;
    widget.renderModel = async model => {
      last += 1;
      const number = last;
      const data = model.data[TYPE];
      const source = Array.isArray(data) ? data.join('') : data;
      if (
        typeof source !== 'string' ||
        source.startsWith(FRAMED) ||
        !isHeavy(source) ||
        !(await isOurs()) ||
        isProgram(source)
      ) {
        return number === last ? render(model) : undefined; // another one came meanwhile
      }
      if (number === last) {
        widget.node.replaceChildren(frameOf(source));
      }
    };
    return widget;
  };
  rendermime.addFactory({ ...factory, mimeTypes: [TYPE], createRenderer }, rendermime.getRank(TYPE));
}

/** Whether a frame without scripts would not show it. The policy lets no script pass but in frames of ours. */
function isProgram(source: string): boolean {
  // Only what a parser takes for a script is one: "<script" may stand in the value of an attribute.
  return /<script/i.test(source) && new DOMParser().parseFromString(source, 'text/html').scripts.length > 0;
}

function isHeavy(source: string): boolean {
  if (source.length < FEW) {
    return false;
  }
  const text = source.replace(PICTURES, '');
  let weight = text.length / LETTERS_OF_ELEMENT;
  for (const [, span] of text.matchAll(/<[a-z]|span\s{0,9}=\s{0,9}["']?(\d{1,9})/gi)) {
    weight += span === undefined ? 1 : Number(span);
    if (weight > MAX_WEIGHT) {
      return true;
    }
  }
  return weight > MAX_WEIGHT;
}

function frameOf(source: string): HTMLIFrameElement {
  const frame = document.createElement('iframe');
  frame.className = 'sk-Heavy';
  frame.setAttribute('sandbox', 'allow-popups allow-popups-to-escape-sandbox');
  frame.referrerPolicy = 'no-referrer';
  frame.style.height = `${HEIGHT}px`;
  frame.title = 'A large output, drawn apart from the page';
  frame.srcdoc =
    `<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${POLICY}">` +
    `<meta http-equiv="x-dns-prefetch-control" content="off"><base target="_blank"><style>${style()}</style>${source}`;
  return frame;
}

/** What JupyterLab's own sheet says of outputs, as much as a table needs. */
function style(): string {
  const page = getComputedStyle(document.body);
  const [color, background, stripe] = COLOURS.map(name => page.getPropertyValue(name).replace(/[<>{};]/g, ''));
  return (
    `html{color:${color};background:${background};font:13px system-ui,sans-serif}body{margin:4px}` +
    'table{border-collapse:collapse;border:none;font-size:12px}td,th{text-align:right;vertical-align:middle;' +
    `padding:.5em;line-height:normal}thead{border-bottom:1px solid}tbody tr:nth-child(odd){background:${stripe}}`
  );
}
