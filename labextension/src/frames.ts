/**
 * Frames of outputs: as high as what they show, in the colours of the theme, with the libraries that they lack.
 *
 * A frame is a program of a cell's, and the page reads no message of one. To read a value is to build it, and one message
 * can keep a page for a minute. So a frame gets ports when it loads, and which port a message came over is all that it
 * says: that a binary digit of its height changed, or that it wants a library. What a message holds is never looked at,
 * so its size does not matter. A document that sends more than `MESSAGES` loses its ports. What goes in are two colours,
 * and libraries of the same notebook.
 */

import type { IThemeManager } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';

import { giveLibraries } from './libraries';

const FRAMES = '.jp-OutputArea-output iframe[sandbox="allow-scripts"]';
const LOWEST = 24;
const HIGHEST = 1600;
/** Heights that one frame is given, so that none moves the page for ever. */
const MAX_HEIGHTS = 40;
/** Ports of a frame: one for each binary digit of its height in CSS pixels, and one to want libraries with. */
const DIGITS = 11;
/** Messages of one document: as many heights as it is given, if all digits change each time, and some more. */
const MESSAGES = 600;
/** Times that a document gets what it wants. */
const GIVEN = 16;
/** A height is whole when no digit has changed for so long: each port has an order of its own. */
const QUIET_MS = 40;
/** Between two times that a frame gets ports: one may load itself again and again. */
const GAP_MS = 1000;

interface Fitted {
  /** What was set last; another height is a person's, who dragged the frame's corner. */
  set: string;
  said: number | null;
  /** How much the last height was above the one before. */
  grew: number;
  left: number;
  /** When it got its ports, in milliseconds of the page. */
  handed: number;
  waits: number | undefined;
  close: () => void;
}

export function serveFrames(themes: IThemeManager | null, notebooks: INotebookTracker | null): void {
  const known = new WeakMap<HTMLIFrameElement, Fitted>();
  const hand = (frame: HTMLIFrameElement) => {
    let fitted = known.get(frame);
    if (fitted === undefined) {
      const never = { said: null, grew: 0, left: MAX_HEIGHTS, handed: -Infinity, waits: undefined, close: () => undefined };
      fitted = { set: frame.style.height, ...never };
      known.set(frame, fitted);
    }
    const rest = fitted.handed + GAP_MS - performance.now();
    if (rest > 0) {
      // One timer for all loads meanwhile. It may fire a little early.
      window.clearTimeout(fitted.waits);
      fitted.waits = window.setTimeout(hand, rest + 1, frame);
      return;
    }
    fitted.handed = performance.now();
    fitted.close();
    const ports = listen(frame, fitted, () => {
      if (notebooks !== null) {
        giveLibraries(frame, notebooks);
      }
    });
    frame.contentWindow?.postMessage({ sandboxKernelTheme: colours(themes) }, '*', ports);
  };
  document.querySelectorAll<HTMLIFrameElement>(FRAMES).forEach(hand);
  document.addEventListener(
    'load',
    ({ target }) => {
      if (target instanceof HTMLIFrameElement && target.matches(FRAMES)) {
        hand(target);
      }
    },
    true
  );
  themes?.themeChanged.connect(() => {
    for (const frame of document.querySelectorAll<HTMLIFrameElement>(FRAMES)) {
      frame.contentWindow?.postMessage({ sandboxKernelTheme: colours(themes) }, '*');
    }
  });
}

/** Listen to one document of a frame, until it has said too much; return the ends of the ports that it gets. */
function listen(frame: HTMLIFrameElement, fitted: Fitted, give: () => void): MessagePort[] {
  const channels = Array.from({ length: DIGITS + 1 }, () => new MessageChannel());
  let messages = 0;
  let given = 0;
  let height = 0;
  let fits: number | undefined;
  let gives: number | undefined;
  fitted.close = () => {
    channels.forEach(channel => channel.port1.close());
    window.clearTimeout(fits);
    window.clearTimeout(gives);
  };
  channels.forEach(({ port1 }, digit) => {
    // It takes no event, so that nothing can be read.
    port1.onmessage = () => {
      messages += 1;
      if (messages > MESSAGES) {
        fitted.close();
      } else if (digit < DIGITS) {
        height ^= 1 << digit;
        window.clearTimeout(fits);
        fits = window.setTimeout(() => fit(frame, fitted, Math.min(HIGHEST, Math.max(LOWEST, height))), QUIET_MS);
      } else if (gives === undefined && given < GIVEN) {
        given += 1;
        gives = window.setTimeout(() => {
          gives = undefined;
          give();
        }, QUIET_MS);
      }
    };
  });
  return channels.map(channel => channel.port2);
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

/** The colours of the page around a frame. */
function colours(themes: IThemeManager | null): { color: string; background: string; dark: boolean } {
  const probe = document.createElement('div');
  probe.style.color = 'var(--jp-content-font-color1)';
  probe.style.backgroundColor = 'var(--jp-layout-color0)';
  document.body.append(probe);
  const { color, backgroundColor } = getComputedStyle(probe);
  probe.remove();
  return { color, background: backgroundColor, dark: themes?.theme != null && !themes.isLight(themes.theme) };
}
