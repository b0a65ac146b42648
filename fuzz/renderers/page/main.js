// One page that renders outputs by the hundred and says what is wrong with each, for the program that drives it.
import { judge } from './judge.js';
import * as lab from './lab.js';
import * as vscode from './vscode.js';

const SLOW = 2000;  // milliseconds of one output
const RENDERERS = {
  lab: { ...lab, own: ownOfLab },
  vscode: { ...vscode, own: ownOfCode },
};

const ACTING_SCHEME = /^(javascript|vbscript|livescript|file|blob|filesystem|about|chrome|view-source|command|vscode[\w-]*|ms-[\w-]+|intent):/i;

// Attributes and classes that a renderer makes itself, told by where they stand.
function ownOfLab(element, name) {
  // Printed addresses become links, whatever their scheme, which open in a window of their own.
  if (name === 'href' && element.rel === 'noopener' && element.closest('pre')) return !ACTING_SCHEME.test(element.href);
  if (name === null) return element.matches('.jp-InternalAnchorLink, .jp-OutputArea-output');
  if (name === 'class' && element.localName === 'img') return element.className === 'jp-mod-unconfined' || /^jp-needs-(light|dark)-background$/.test(element.className);
  if (name === 'class') return element.closest('pre > code') !== null && element.localName === 'span';
  return name === 'data-jupyter-id' || name === 'data-path' || name === 'data-locator';
}

function ownOfCode(element, name) {
  if (name === 'href' && element.attributes.length === 1 && element.getAttribute('href') === element.textContent) return !ACTING_SCHEME.test(element.href);
  // The place of an error.
  if (name === 'href' && element.attributes.length === 1 && /^(line )?\d+$|^In\s*\[\d+\]$/.test(element.textContent))
    return /^(vscode-notebook-cell:|[^a-z]|[^:]+(:\d|$))/i.test(element.getAttribute('href'));
  if (name === null) return element.matches('.vscode-code-block');
  if (name === 'id') return element.getRootNode() !== document && (element.id === 'preview' || /^h[1-6]$/.test(element.localName));
  return false;
}

// What ran or asked for something, as it happens: [number or 0, what]. It is filled before any page's own scripts.
const log = globalThis.__log ??= [];

// Render documents [{number, outputs: [{type, value, metadata}]}]; return faults {number: [...]}, and those of nobody under 0.
globalThis.__run = async (name, documents, wait) => {
  const { render, state, own } = RENDERERS[name];
  const faults = {}, hosts = [];
  const add = (number, what) => { (faults[number ?? 0] ??= []).push(what); };
  log.length = 0;
  let before = await state();
  const page = document.body.childElementCount;
  for (const { number, outputs } of documents) {
    const began = performance.now();
    for (const output of outputs) {
      const host = document.createElement('div');
      host.className = 'host';
      document.body.append(host);
      hosts.push([number, host]);
      try {
        await render(output, host);
      } catch (error) {
        if (output.type !== 'image/png') console.debug(number, String(error));
      }
      host.getBoundingClientRect();
    }
    const took = performance.now() - began;
    if (took > SLOW) add(number, `took long: ${Math.round(took)} ms`);
  }
  await settled(hosts, wait);
  const focused = document.activeElement;
  if (focused !== document.body) add(hosts.find(([, host]) => host.contains(focused))?.[0], `focus went to <${focused.localName}>`);
  for (const [number, host] of hosts) for (const fault of judge(host, own)) add(number, fault);
  for (const [number, what] of log) add(number, what);
  for (const [, host] of hosts) host.remove();
  const left = document.body.childElementCount - page;
  if (left) add(0, `${left} elements outside of the output: ${document.body.lastElementChild.outerHTML.slice(0, 100)}`);
  const after = await state();
  for (const one of after.defined)
    if (!before.defined.includes(one)) add(0, `defined: ${one}`);
  if (after.looks !== before.looks) add(0, 'formulas look different');
  if (after.settings !== before.settings) add(0, 'settings of formulas changed');
  return faults;
};

// Wait until images have loaded or failed, and what is left for the next frames has run.
async function settled(hosts, wait) {
  const images = hosts.flatMap(([, host]) => [...host.querySelectorAll('img')]);
  await Promise.race([
    Promise.all(images.map(image => image.complete || new Promise(done => {
      image.addEventListener('load', done);
      image.addEventListener('error', done);
    }))),
    new Promise(done => setTimeout(done, 1000)),
  ]);
  await new Promise(done => setTimeout(done, wait));
}

// Judge an export of nbconvert in a frame of its own: the cells of documents, by their numbers, in their order.
globalThis.__open = async (address, numbers, wait) => {
  const faults = {};
  const add = (number, what) => { (faults[number ?? 0] ??= []).push(what); };
  log.length = 0;
  const frame = document.createElement('iframe');
  frame.src = address;
  frame.className = 'export';
  document.body.append(frame);
  await new Promise(done => { frame.addEventListener('load', done); });
  const page = frame.contentWindow, inside = frame.contentDocument;
  if (page.MathJax?.Hub) await new Promise(done => { page.MathJax.Hub.Queue(done); });
  else add(0, 'no MathJax');
  await new Promise(done => setTimeout(done, wait));
  const cells = [...inside.querySelectorAll('[id^="cell-id="]')];
  if (cells.length !== numbers.length) add(0, `${cells.length} cells, not ${numbers.length}`);
  const list = cells[0]?.parentNode;
  for (const element of list?.children ?? []) if (!cells.includes(element)) add(0, `outside of every cell: <${element.localName}>`);
  for (const element of inside.body.children)
    if (!element.contains(list) && !element.matches('script, [id^=MathJax], [style*="visibility: hidden"]')) add(0, `outside of the notebook: <${element.localName}>`);
  for (const cell of cells) {
    const number = Number(cell.id.slice('cell-id='.length)) || 0;
    if (cell.parentNode !== list) add(number, 'a cell that is in another one');
    for (const [element, expected] of parts(cell)) {
      if (!expected) add(number, `not in its place: <${element.localName} class=${element.className}>`);
      for (const fault of judge(element, ownOfExport)) add(number, fault);
    }
  }
  const focused = inside.activeElement;
  if (focused && focused !== inside.body) add(Number(focused.closest('[id^="cell-id="]')?.id.slice('cell-id='.length)), `focus went to <${focused.localName}>`);
  const defined = Object.keys(page.MathJax?.InputJax?.TeX?.Definitions?.macros ?? {});
  for (const [number, what] of log) add(number, what);
  frame.remove();
  return { faults, defined: defined.concat(Object.keys(page.MathJax?.InputJax?.TeX?.Definitions?.environment ?? {})) };
};

// What the template wraps around outputs, from the outside to the inside; below the last comes the output.
const WRAPPED = [
  '.jp-Cell-outputWrapper, .output_wrapper', '.jp-OutputArea, .output', '.jp-OutputArea-child, .output_area',
  '.jp-OutputArea-output, .output_subarea, .jp-Mermaid',
];
const BESIDE = '.jp-Collapser, .jp-OutputPrompt, .prompt';

function parts(cell) {
  let level = [cell];
  const found = [];
  for (const selector of WRAPPED) {
    const next = [];
    for (const element of level)
      for (const child of element.children)
        if (child.matches(selector)) next.push(child);
        else if (!child.matches(BESIDE) || child.childElementCount) found.push([element, false]);
    level = next;
  }
  return [...found, ...level.map(element => [element, true])];
}

function ownOfExport(element, name) {
  if (name === null) return element.matches('script[type^="math/tex"], a.anchor-link');
  if (name === 'id' || name === 'tabindex')
    return /^MathJax-Element-\d+(-Frame)?$/.test(element.id) || (name === 'id' && /^h[1-6]$/.test(element.localName));
  if (name === 'class' && element.closest('pre') !== null) return !/(^|\s)(jp|lm)-/.test(element.className);
  return name === 'class' && element.localName === 'img' && /^\s*(unconfined|jp-needs-\w+-background|\s)*$/.test(element.className);
}

globalThis.__ready = true;
