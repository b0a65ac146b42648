// The script of the outer frame, which a program cannot reach. It stops the program if it comes to the focus in a way
// that its guard does not know, and stands between the program and the page: out goes the height that the program's
// frame would like, at most every 100 ms; in go two colours. Our extension hands it twelve ports when it loads, for the
// page reads no message: an empty message on one of the first eleven says that this binary digit of the height has
// changed, and one on the last that a library is wanted. A page without our extension is told nothing.
// Outside of a frame without an origin it does nothing, so a page may allow it.
if (self.origin == 'null') {
  let frame = /** @type {HTMLIFrameElement} */ (document.querySelector('iframe'));
  const program = frame.srcdoc;

  // --- the keyboard ---

  let taken = 0;
  let tabbed = -1e4;
  let entered = false;
  let hovered = false;
  for (const type of ['pointerover', 'pointermove']) addEventListener(type, () => { hovered = true; }, true);
  document.documentElement.addEventListener('pointerleave', () => { hovered = false; });
  // A key pressed in this frame comes before Tab goes on to the program.
  addEventListener('keydown', event => { if (event.key == 'Tab') tabbed = performance.now(); }, true);
  addEventListener('pointerdown', () => { entered = true; }, true);
  /** @param {string} why */
  const stop = why => {
    frame.remove();
    const note = document.createElement('p');
    const button = document.createElement('button');
    note.textContent = `[sandbox_kernel: stopped this output: ${why}] `;
    button.textContent = 'Run it again';
    button.onclick = () => {
      note.remove();
      frame = /** @type {HTMLIFrameElement} */ (frame.cloneNode());
      frame.srcdoc = program;
      document.body.append(frame);
      taken = 0;
      late = 0;
      entered = true;
    };
    note.append(button);
    document.body.append(note);
  };
  setInterval(() => {
    const active = document.activeElement;
    const inside = active == frame || (document.hasFocus() && active == document.body);
    if (!inside) {
      entered = false;
      taken = 0;
    } else if (!entered) {
      if (active == frame && (navigator.userActivation.isActive || performance.now() - tabbed < 1000)) entered = true;
      else if (++taken > (hovered ? 5 : 0) && frame.isConnected) stop('it took the keyboard without a click');
    }
  }, 10);

  // --- what cannot be drawn ---

  // Where the processor draws, some styles take seconds for each picture, and no tab of the browser gets one meanwhile,
  // though scripts run. A frame in view is asked each second whether it was drawn. Its neighbours wait as it does, so that
  // not all end at once, each waits a little longer or shorter.
  const PATIENCE = 8e3 + 4e3 * Math.random();
  let inView = false;
  let drawn = true;
  let late = 0;
  let before = 0;
  new IntersectionObserver(seen => { inView = seen[seen.length - 1].isIntersecting; }).observe(document.documentElement);
  setInterval(() => {
    // Where scripts have waited, too, it is another's fault, or the machine slept.
    const passed = Math.min(performance.now() - before, 1500);
    before = performance.now();
    if (document.hidden || !inView) late = 0;
    else late = Math.max(0, late + (drawn ? -1000 : passed));
    if (late > PATIENCE && frame.isConnected) stop('the browser could draw hardly anything for many seconds');
    if (!drawn) return;
    drawn = false;
    requestAnimationFrame(() => { drawn = true; });
  }, 1000);

  // --- the height ---

  let height = -1;
  let timer = 0;
  let told = 0;
  /** @type {readonly MessagePort[]} */
  let ports = [];
  const tell = () => {
    timer = 0;
    const changed = Math.min(height, 2047) ^ told;
    told ^= changed;
    ports.forEach((port, bit) => { if ((changed >> bit) & 1) port.postMessage(0); });
  };

  // --- libraries: a program that does without one has it from a frame beside, by its hash ---

  const NAME = /^[0-9a-f]{64}$/;
  /**
   * False while a library is wanted, true when it has come.
   * @type {Map<string, boolean>}
   */
  const wanted = new Map();
  const given = new WeakMap();
  const liars = new WeakSet();
  let asked = 0;
  /** @param {string} name */
  const held = name => {
    const start = program.indexOf('data-packed="' + name + ':');
    const end = program.indexOf('>', start) + 1;
    return start < 0 ? '' : program.slice(end, program.indexOf('<', end));
  };
  /**
   * @param {string} name
   * @param {number} wait milliseconds
   */
  const ask = (name, wait) => {
    if (wanted.get(name) || ++asked > 64) return;
    ports[11]?.postMessage(0);
    for (let i = 0; i < parent.length && i < 500; i++)
      if (parent[i] != self) parent[i].postMessage({sandboxKernelWant: name}, '*');
    setTimeout(ask, wait, name, Math.min(2 * wait, 3e4));
  };
  /**
   * SHA-256. A page that came over plain HTTP has no `crypto.subtle`, and shares libraries all the same.
   * @param {string} text
   */
  const hash = text => {
    const bytes = new TextEncoder().encode(text);
    const view = new DataView(new ArrayBuffer(((bytes.length + 72) >> 6) << 6));
    new Uint8Array(view.buffer).set(bytes);
    view.setUint8(bytes.length, 128);
    view.setUint32(view.byteLength - 4, bytes.length * 8);
    /**
     * @param {number} x
     * @param {number} n
     */
    const rotated = (x, n) => (x >>> n) | (x << (32 - n));
    const words = new Int32Array(64);
    /** @type {number[]} */
    const constants = [];
    /** @type {number[]} */
    const state = [];
    for (let p = 2; constants.length < 64; p++) {
      let q = 2;
      while (p % q) q++;
      if (q < p) continue;
      if (state.length < 8) state.push((p ** 0.5 * 2 ** 32) | 0);
      constants.push((p ** (1 / 3) * 2 ** 32) | 0);
    }
    for (let offset = 0; offset < view.byteLength; offset += 64) {
      let [a, b, c, d, e, f, g, h] = state;
      for (let i = 0; i < 64; i++) {
        if (i < 16) words[i] = view.getInt32(offset + 4 * i);
        else {
          const x = words[i - 15];
          const y = words[i - 2];
          const low = rotated(x, 7) ^ rotated(x, 18) ^ (x >>> 3);
          const high = rotated(y, 17) ^ rotated(y, 19) ^ (y >>> 10);
          words[i] = words[i - 16] + low + words[i - 7] + high;
        }
        const choice = (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g));
        const first = (h + choice + constants[i] + words[i]) | 0;
        const second = ((rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        h = g;
        g = f;
        f = e;
        e = (d + first) | 0;
        d = c;
        c = b;
        b = a;
        a = (first + second) | 0;
      }
      [a, b, c, d, e, f, g, h].forEach((word, i) => { state[i] = (state[i] + word) | 0; });
    }
    return state.map(word => (word >>> 0).toString(16).padStart(8, '0')).join('');
  };

  // --- messages ---

  /** @param {unknown} message */
  const pass = message => { if (frame.isConnected) frame.contentWindow?.postMessage(message, '*'); };
  /** @param {any} message of the program, which may say anything */
  const heard = message => {
    const {sandboxKernelWant: name, sandboxKernelHeight: wish} = message;
    if (typeof wish == 'number' && wish >= 0 && wish < 1e5 && Math.ceil(wish) != height) {
      height = Math.ceil(wish);
      if (!timer) timer = setTimeout(tell, 100);
    }
    if (typeof name == 'string' && NAME.test(name) && wanted.size < 8 && wanted.get(name) !== false) {
      wanted.set(name, false);
      ask(name, 500);
    }
  };
  addEventListener('message', event => {
    const message = event.data;
    const source = /** @type {Window | null} */ (event.source);
    if (!message || typeof message != 'object' || !source) return;
    if (source == frame.contentWindow) return heard(message);
    const {sandboxKernelWant: name, sandboxKernelOf: of, sandboxKernelCode: code, sandboxKernelTheme: theme} = message;
    if (wanted.get(of) === false && typeof code == 'string' && code.length < 1e7 && !liars.has(source)) {
      const honest = hash(code) == of;
      if (honest) {
        wanted.set(of, true);
        pass({sandboxKernelOf: of, sandboxKernelCode: code});
      } else liars.add(source);
    }
    if (source == parent) {
      if (event.ports.length == 12) {
        ports = event.ports;
        told = 0;
        if (height >= 0) tell();
        if ([...wanted.values()].includes(false)) ports[11].postMessage(0);
      }
      const COLOUR = /^rgba?\([\d., ]{5,40}\)$/;
      if (theme && COLOUR.test(theme.color) && COLOUR.test(theme.background)) {
        const checked = {color: theme.color, background: theme.background, dark: theme.dark === true};
        document.documentElement.style.color = checked.color;
        pass({sandboxKernelTheme: checked});
      }
    } else if (typeof name == 'string' && NAME.test(name)) {
      const times = given.get(source) || 0;
      const text = times < 4 ? held(name) : '';
      if (text) {
        given.set(source, times + 1);
        source.postMessage({sandboxKernelOf: name, sandboxKernelCode: text}, '*');
      }
    }
  });
}
