// What must not be in a page after an output was rendered. Knows nothing of the policy, and little of the renderers.

const FORBIDDEN = new Set(`applet area base button dialog embed fencedframe fieldset form frame frameset input isindex keygen
  link map marquee menu meta noembed noframes noscript object option output param picture plaintext portal select slot
  template textarea title track xmp animate animatemotion animatetransform discard feimage foreignobject handler image
  listener mpath set switch use`.split(/\s+/));
const MATHS = '.katex, mjx-container, .MathJax, .MathJax_Display, .MathJax_CHTML, .mjx-chtml, .MathJax_Preview, .MathJax_Error, .MJXc-display';
const URLS = new Set(`action archive background cite classid code codebase data dynsrc formaction href icon imagesrcset
  longdesc lowsrc manifest ping poster profile src srcset usemap xlink:href`.split(/\s+/));
const ACTING = new Set(`accesskey autofocus autoplay command commandfor contenteditable download draggable form
  formenctype formmethod formtarget http-equiv interestfor inert is itemscope itemtype name nonce part popover
  popovertarget popovertargetaction shadowrootmode slot srcdoc tabindex writingsuggestions xml:base`.split(/\s+/));
const PAGE_CLASS = /^(jp|lm|p|cm|bp\d|jupyter|Toastify|widget|monaco|codicon|vscode|dijit|CodeMirror)[-_]|^(output|cell|notebook|input|prompt|container|modal|dropdown)(_|$)/;
const LOADS = /(url|image-set|image|src|element|cross-fade|paint|env|attr|expression)\s*\(/i;
const PLACED = ['inset', 'top', 'left', 'right', 'bottom', 'transform', 'translate', 'rotate', 'scale', 'animation-name',
  'animation', 'transition', 'offset-path', 'position-anchor', 'anchor-name', 'view-transition-name', 'zoom', 'content',
  'behavior', '-moz-binding', 'cursor', 'pointer-events', 'all', 'will-change'];
const SCOPED = /^\.sandbox-output-[0-9a-f]{16}(?![\w-])/;
const FRAME = new Set(['sandbox', 'referrerpolicy', 'style', 'srcdoc', 'title', 'tabindex', 'loading', 'inert', 'class', 'allow',
  'scrolling', 'credentialless', 'csp']);

// Return what is wrong below `root`. `own` says of an element or attribute that the renderer itself makes it so.
export function judge(root, own = () => false) {
  const faults = new Set();
  const walk = node => {
    for (const element of node.children ?? []) {
      if (!own(element, null)) one(element, faults, own);
      if (element.shadowRoot) walk(element.shadowRoot);
      if (element.localName === 'template') walk(element.content);
      walk(element);
    }
  };
  walk(root);
  return [...faults];
}

function one(element, faults, own) {
  const tag = element.localName.toLowerCase();
  const math = element.closest(MATHS) !== null;
  if (tag === 'script') faults.add(`<script type=${element.type}>`);
  else if (FORBIDDEN.has(tag) && !(tag === 'input' && isTask(element))) faults.add(`<${tag}>`);
  else if (tag === 'iframe') frame(element, faults);
  else if (tag === 'style') sheet(element.sheet, faults);
  else if ((tag === 'svg' || tag === 'math') && !math && element.closest('mjx-assistive-mml') === null) faults.add(`<${tag}>`);
  else if (tag.includes('-') && !(math && tag.startsWith('mjx-')) && !/^(annotation-xml|font-face.*|color-profile|missing-glyph)$/.test(tag))
    faults.add(`<${tag}>`);
  for (const { name: written, value } of element.attributes) {
    const name = written.toLowerCase();
    if (own(element, name) || (tag === 'iframe' && FRAME.has(name))) continue;
    if (name.startsWith('on')) faults.add(`${name} on <${tag}>`);
    else if (URLS.has(name)) url(tag, name, value, math, faults);
    else if (name === 'style') style(element.style, math, faults);
    else if (name === 'class') classes(element, math, faults);
    else if (name === 'id') { if (!math && !/^T_[\w-]*$/.test(value)) faults.add(`id: ${value.slice(0, 40)}`); }
    else if (name.startsWith('data-') && !math) faults.add(`${name} on <${tag}>`);
    else if (ACTING.has(name) && !(math && name === 'tabindex') && !(tag === 'input' && isTask(element))) faults.add(`${name} on <${tag}>`);
    else if (LOADS.test(value) && /^(fill|stroke|filter|mask|clip-path|marker.*|cursor|from|to|values|by|attributename)$/.test(name))
      faults.add(`${name} on <${tag}>: ${value.slice(0, 40)}`);
  }
}

// The box of a Markdown list, which nobody can tick.
function isTask(element) {
  return element.type === 'checkbox' && element.disabled
    && element.getAttributeNames().every(name => ['type', 'disabled', 'checked', 'class'].includes(name));
}

function url(tag, name, value, math, faults) {
  const address = value.replace(/[\u0000-\u0020]/g, '').toLowerCase();
  if (math && name === 'href' && address.startsWith('#')) return;  // to the label of another formula
  if (tag === 'a' && name === 'href' && /^((https?|ftp):\/\/|mailto:)/.test(address)) return;
  if (['img', 'audio', 'video', 'source'].includes(tag) && name === 'src'
    && /^(data:(image|audio|video)\/[\w.+-]+[;,]|blob:)/.test(address)) return;
  const scheme = /^[a-z][a-z0-9+.-]*:/.exec(address)?.[0] ?? 'without a scheme';
  faults.add(`${name} ${scheme} on <${tag}>: ${value.slice(0, 60)}`);
}

function classes(element, math, faults) {
  if (math) return;
  for (const name of element.classList)
    if (PAGE_CLASS.test(name)) faults.add(`class: ${name.slice(0, 40)}`);
}

// In a sheet, whose rules are for one output alone that paints within its edges, words may stand before an element and
// a part may be placed over others, as the tooltips of tables are.
function style(declared, math, faults, within = false) {
  for (const name of declared) {
    const value = declared.getPropertyValue(name);
    if (name.startsWith('--')) faults.add(`style --: ${name.slice(0, 30)}`);
    if (LOADS.test(value)) faults.add(`style ${name}: ${value.slice(0, 60)}`);
    if (name === 'position' && (math || within ? /fixed|sticky/ : /fixed|absolute|sticky/).test(value)) faults.add(`style position: ${value}`);
    if (within && name === 'content' && /^"[^"\\<>]{0,200}"$/.test(value)) continue;
    if (within && name === 'transform' && /^translate\(-?\d{1,3}(px|em|%)(, -?\d{1,3}(px|em|%))?\)$/.test(value)) continue;
    if (math) continue;
    if (PLACED.includes(name) && value !== 'auto' && value !== 'none' && value !== 'pointer') faults.add(`style ${name}: ${value.slice(0, 40)}`);
    if (/^(margin|text-indent|letter-spacing|word-spacing)/.test(name) && /(^|[\s(])-/.test(value)) faults.add(`style ${name}: ${value.slice(0, 40)}`);
  }
}

function sheet(rules, faults) {
  for (const rule of rules?.cssRules ?? []) {
    if (rule instanceof rule_type(rule, 'CSSMediaRule') || rule instanceof rule_type(rule, 'CSSSupportsRule')) sheet(rule, faults);
    else if (rule instanceof rule_type(rule, 'CSSStyleRule')) {
      for (const part of rule.selectorText.split(','))
        if (!SCOPED.test(part.trim())) faults.add(`a rule for: ${part.trim().slice(0, 40)}`);
      style(rule.style, false, faults, true);
      sheet(rule, faults);
    } else faults.add(`a rule: ${rule.cssText.slice(0, 40)}`);
  }
}

// Rules of another document are of that document's types.
function rule_type(rule, name) {
  return (rule.parentStyleSheet?.ownerNode?.ownerDocument?.defaultView ?? window)[name];
}

// Two frames, one in the other, without origin, under a policy that comes first and lets nothing load. The only script
// of the outer one is told to this page by its driver, which knows its hash.
function frame(element, faults) {
  const names = element.getAttributeNames();
  if (element.getAttribute('sandbox') !== 'allow-scripts' || !element.hasAttribute('srcdoc') || names.includes('src')) {
    faults.add(`a frame with: ${names.join(' ')}`);
    return;
  }
  style(element.style, false, faults);
  const outer = new DOMParser().parseFromString(element.getAttribute('srcdoc'), 'text/html');
  const inside = [...outer.body.children];
  const [before, inner, after, watch] = inside;
  const still = stop => stop.childNodes.length === 0 && stop.getAttributeNames().join() === 'tabindex';
  if (inside.map(one => one.localName).join() !== 'b,iframe,b,script' || !still(before) || !still(after)
    || watch.textContent !== globalThis.__watch || outer.querySelectorAll('script').length !== 1)
    faults.add('an outer frame that holds more than the inner one and what watches over the keyboard');
  if (inner?.getAttribute('sandbox') !== 'allow-scripts' || inner.hasAttribute('src')) faults.add('an inner frame that is open');
  for (const document of [outer, new DOMParser().parseFromString(inner?.getAttribute('srcdoc') ?? '', 'text/html')]) {
    const metas = [...document.head.children].filter(child => child.localName !== 'meta' || child.httpEquiv || child.name);
    const policy = metas[0]?.httpEquiv === 'Content-Security-Policy' ? metas[0].content : '';
    for (const directive of ["default-src 'none'", "connect-src 'none'", "frame-src 'none'", "form-action 'none'", "base-uri 'none'"])
      if (!policy.includes(directive)) faults.add(`a frame without ${directive}`);
    if (/https?:|\*/.test(policy) || /script-src[^;]*'unsafe-inline'/.test(policy)) faults.add('a frame whose policy is open');
  }
}
