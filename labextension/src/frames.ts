/**
 * Frames of outputs: as high as what they show, in the colours of the theme.
 *
 * A frame is a program of a cell's. Of what it says, one number is taken, only from the window of a frame without an
 * origin that lies in an output, held within bounds, and so many times. What goes in are two colours.
 */

import type { IThemeManager } from '@jupyterlab/apputils';

import { record } from './said';

export const FRAMES = '.jp-OutputArea-output iframe[sandbox="allow-scripts"]';
const LOWEST = 24;
const HIGHEST = 1600;
/** Heights that one frame is given, so that none moves the page for ever. */
const MOST = 40;

interface Fitted {
  /** What was set last; another height is a person's, who dragged the frame's corner. */
  set: string;
  said: number | null;
  /** How much the last height was above the one before. */
  grew: number;
  left: number;
}

export function fitFrames(themes: IThemeManager | null): void {
  const known = new WeakMap<HTMLIFrameElement, Fitted>();
  const frames = new WeakMap<object, HTMLIFrameElement | null>();
  window.addEventListener('message', event => {
    const said = record(event.data)['sandboxKernelHeight'];
    if (event.source === null || typeof said !== 'number' || !Number.isFinite(said) || said < 0) {
      return;
    }
    // Once for each window: one that floods the page makes it look for nothing.
    let frame = frames.get(event.source);
    if (frame === undefined) {
      const all = [...document.querySelectorAll<HTMLIFrameElement>(FRAMES)];
      frame = all.find(one => one.contentWindow === event.source) ?? null;
      frames.set(event.source, frame);
    }
    if (frame === null || frame.contentWindow !== event.source) {
      return;
    }
    let fitted = known.get(frame);
    if (fitted === undefined) {
      fitted = { set: frame.style.height, said: null, grew: 0, left: MOST };
      known.set(frame, fitted);
    }
    if (fitted.said === null) {
      paint(frame, themes);
    }
    fit(frame, fitted, Math.min(HIGHEST, Math.max(LOWEST, Math.ceil(said))));
  });
  themes?.themeChanged.connect(() => {
    for (const frame of document.querySelectorAll<HTMLIFrameElement>(FRAMES)) {
      if (known.has(frame)) {
        paint(frame, themes);
      }
    }
  });
}

function fit(frame: HTMLIFrameElement, fitted: Fitted, said: number): void {
  const before = fitted.said ?? frame.offsetHeight;
  const grown = said - before;
  if (fitted.left <= 0 || frame.style.height !== fitted.set || grown === 0) {
    fitted.said ??= said;
    return;
  }
  if (grown === fitted.grew) {
    fitted.left = 0; // it is a little higher or lower than its window, whatever height that has
    return;
  }
  frame.style.height = `${said}px`;
  fitted.left -= 1;
  fitted.set = frame.style.height;
  fitted.said = said;
  fitted.grew = grown;
}

/** Tell a frame the colours of the page around it. */
function paint(frame: HTMLIFrameElement, themes: IThemeManager | null): void {
  const probe = document.createElement('div');
  probe.style.color = 'var(--jp-content-font-color1)';
  probe.style.backgroundColor = 'var(--jp-layout-color0)';
  document.body.append(probe);
  const { color, backgroundColor } = getComputedStyle(probe);
  const dark = themes?.theme != null && !themes.isLight(themes.theme);
  frame.contentWindow?.postMessage({ sandboxKernelTheme: { color, background: backgroundColor, dark } }, '*');
  probe.remove();
}
