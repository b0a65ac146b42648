// Runs the scripts of a program where they did not run by themselves: a page whose policy knows no hash but this one.
// Each would have run in the same order. So it does with all scripts of a frame in which one is packed, for that one is
// unpacked first; those that wait for the document hear once more that it is there.
// Outside of a frame without an origin it does nothing, so a page may allow it.
if (self.origin === 'null') {
  const SIGNS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=/?@^_`{|}~';
  const late = [...document.scripts].filter(script => script.type === 'text/later');
  /**
   * @param {HTMLScriptElement} script
   * @param {string} code
   */
  const run = (script, code) => {
    Object.defineProperty(document, 'currentScript', {configurable: true, get: () => script});
    try {
      (0, eval)(code);
    } catch (error) {
      reportError(error);
    }
  };
  /**
   * Has a library from another output of the page.
   * @param {string} name
   * @returns {Promise<string>}
   */
  const get = name =>
    new Promise(resolve => {
      addEventListener('message', event => {
        const message = event.data;
        if (event.source === parent && message && message.sandboxKernelOf === name) resolve(message.sandboxKernelCode);
      });
      parent.postMessage({sandboxKernelWant: name}, '*');
    });
  /**
   * @param {string} packed the hash, the bytes of the script and those of what is deflated
   * @param {string} text what is deflated, in 85 signs; empty if another output has it
   */
  const unpack = async (packed, text) => {
    const [name, size, length] = packed.split(':');
    if (!text) {
      const note = document.createElement('p');
      const timer = setTimeout(() => document.body.append(note), 4000);
      note.textContent =
        '[sandbox_kernel: what draws this came with the output of another cell, which this page does not ' +
        'have. Run this cell again, and it comes along.]';
      text = await get(name);
      clearTimeout(timer);
      note.remove();
    }
    const bytes = new Uint8Array((text.length / 5) * 4);
    const view = new DataView(bytes.buffer);
    const values = new Uint8Array(128);
    [...SIGNS].forEach((sign, value) => { values[sign.charCodeAt(0)] = value; });
    for (let i = 0, at = 0; i < bytes.length; i += 4) {
      let number = 0;
      for (const end = at + 5; at < end; at++) number = number * 85 + values[text.charCodeAt(at)];
      view.setUint32(i, number);
    }
    const deflated = new Blob([bytes.subarray(0, +length)]).stream();
    const reader = deflated.pipeThrough(new DecompressionStream('deflate-raw')).getReader();
    const decoder = new TextDecoder();
    let code = '';
    let read = 0;
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return code + decoder.decode();
      if ((read += value.length) > +size) throw Error('longer than it says');
      code += decoder.decode(value, {stream: true});
    }
  };
  const runLate = async () => {
    if (document.readyState !== 'complete') await new Promise(resolve => addEventListener('load', resolve, {once: true}));
    for (const script of late) {
      const packed = script.getAttribute('data-packed');
      const text = script.textContent || '';
      try {
        run(script, packed ? await unpack(packed, text.trim()) : text);
      } catch (error) {
        reportError(error);
      }
    }
    document.dispatchEvent(new Event('DOMContentLoaded', {bubbles: true}));
    dispatchEvent(new Event('load'));
  };
  if (late.length) runLate();
  else if (!('sandboxKernelRan' in window))
    for (const script of [...document.scripts])
      if (
        // The first is the guard, which has run.
        script !== document.scripts[0] &&
        script !== document.currentScript &&
        !script.hasAttribute('src') &&
        /^(|(text|application)\/(x-)?(java|ecma)script)$/i.test(script.type)
      )
        run(script, script.textContent || '');

  // Handlers in attributes, which the policy does not let run, become listeners, behind the same guard.
  for (const element of document.querySelectorAll('*'))
    for (const {name, value} of [...element.attributes]) {
      if (!/^on[a-z]+$/.test(name) || !(name in element)) continue;
      /** @type {Function} */
      let handler;
      try {
        handler = Function('event', value);
      } catch (error) {
        continue;
      }
      element.addEventListener(name.slice(2), event => {
        if (handler.call(element, event) === false) event.preventDefault();
      });
    }

  // It says what height would fit, and takes the colours of the page.
  if (parent !== self) {
    const root = document.documentElement;
    const body = document.body;
    let height = -1;
    const say = () => {
      if (!innerHeight || !innerWidth) return;
      const margin = parseFloat(getComputedStyle(body).marginBottom) || 0;
      let fitting = body.getBoundingClientRect().bottom + scrollY + margin;
      if (root.scrollHeight > root.clientHeight) fitting = Math.max(fitting, root.scrollHeight);
      if (root.scrollWidth > root.clientWidth) fitting += innerHeight - root.clientHeight;
      fitting = Math.ceil(fitting);
      if (fitting !== height) parent.postMessage({sandboxKernelHeight: (height = fitting)}, '*');
    };
    const observer = new ResizeObserver(say);
    observer.observe(body);
    observer.observe(root);
    for (const child of body.children) observer.observe(child);
    addEventListener('load', say);
    addEventListener('message', event => {
      const theme = event.source === parent && event.data && event.data.sandboxKernelTheme;
      if (!theme) return;
      root.style.color = theme.color;
      root.style.background = theme.background;
      root.style.colorScheme = theme.dark ? 'dark' : 'light';
    });
  }
}
