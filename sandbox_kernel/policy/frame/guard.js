// Goes into each frame before the scripts of a program, in one block, so that none of its names is the program's. What a
// sandbox of the browser's and a policy leave to a frame, and what acts on the tab as a whole, is taken away: of `window`
// and `navigator` all but what is listed here, and of the rest what docs/outputs.md names. What moves the focus waits for
// a person's act in the frame, a click or a key in the last five seconds.
// A frame that a program makes has another origin, or none, and runs no script without this one before it.
// Outside of a frame without an origin it does nothing, so a page may allow it.
if (self.origin == 'null') {
  const {defineProperty, getOwnPropertyDescriptor: descriptor, getOwnPropertyNames: names} = Object;
  const call = Reflect.apply;

  // --- what a program has ---

  /** @param {string} words names, or patterns of such */
  const only = words => RegExp(`^(?:${words.trim().replace(/\s+/g, '|')})$`);
  const KEPT = only(`
    Object Function Boolean Symbol Number BigInt Math Date String RegExp Array Map Set Weak.+ Iterator Proxy Reflect Promise
    ArrayBuffer SharedArrayBuffer Atomics DataView (?:Big)?(?:Int|Uint)\\d+(?:Clamped)?Array Float\\d+Array JSON Intl Temporal
    .*Error FinalizationRegistry (?:Async)?DisposableStack WebAssembly globalThis undefined NaN Infinity eval isFinite isNaN
    parse(?:Float|Int) (?:de|en)codeURI(?:Component)? escape unescape

    HTML.* SVG.+ MathMLElement CSS.* DOM.+ Text.* XPath.+ XSLTProcessor .*Event on[a-z]+ Node.* (?:Abstract|Static)?Range
    Document(?:Fragment|Type|Timeline)? XMLDocument XMLSerializer Element(?:Internals)? Attr CharacterData CDATASection Comment
    ProcessingInstruction NamedNodeMap ShadowRoot TreeWalker Window EventTarget Event(?:Counts)? Abort.+ CustomElementRegistry
    CustomStateSet Sanitizer TrustedHTML TrustedScript(?:URL)? TrustedTypePolicy(?:Factory)? trustedTypes UserActivation
    Observable Subscriber Selection CaretPosition RadioNodeList ValidityState InputDeviceCapabilities Touch(?:List)? Option
    Image(?:Data|Bitmap(?:RenderingContext)?)? Audio VTT.+ TimeRanges Media(?:Error|List|QueryList)
    (?:WebKit)?(?:Mutation|Intersection|Resize|Performance)Observer(?:Entry(?:List)?|Size)? MutationRecord
    StyleSheet(?:List)? StylePropertyMap(?:ReadOnly)? Highlight(?:Registry)? FontFace(?:Set)? Animation(?:Effect|Timeline)?
    KeyframeEffect ScrollTimeline ViewTimeline ViewTransition(?:TypeSet)? VisualViewport WebKitCSSMatrix
    WebGL.+ Canvas(?:Gradient|Pattern|RenderingContext2D) Offscreen.+ Path2D
    Performance(?:Entry|Mark|Measure|Timing|Navigation|NavigationTiming|PaintTiming|ResourceTiming)? VisibilityStateEntry
    Readable.+ Writable.+ Transform.+ (?:Dec|C)ompressionStream .+QueuingStrategy Blob File(?:List|Reader)? FormData Headers
    Request Response XMLHttpRequest.* URL(?:Pattern|SearchParams)? webkitURL Crypto(?:Key)? SubtleCrypto
    Message(?:Channel|Port) IdleDeadline Scheduler Task(?:Controller|Signal) DataTransfer(?:Item(?:List)?)? BarProp Screen
    History Location Navigator(?:UAData)? Plugin(?:Array)? MimeType(?:Array)?

    window self document name location history navigator clientInformation customElements origin event frames length top
    parent opener closed frameElement status external screen performance crypto scheduler console visualViewport styleMedia
    (?:location|menu|personal|status|tool)bar scrollbars devicePixelRatio isSecureContext crossOriginIsolated
    originAgentCluster (?:inner|outer)(?:Width|Height) (?:screen|scroll)(?:X|Y|Left|Top) page[XY]Offset scroll(?:To|By)?
    getComputedStyle getSelection matchMedia postMessage reportError queueMicrotask structuredClone createImageBitmap fetch
    atob btoa (?:set|clear)(?:Timeout|Interval) (?:request|cancel)(?:AnimationFrame|IdleCallback)
    webkit(?:Request|Cancel)AnimationFrame (?:add|remove)EventListener dispatchEvent focus find
    TEMPORARY PERSISTENT sandboxKernel.+`);
  const NAVIGATOR = only(`
    constructor app.+ buildID cookieEnabled doNotTrack globalPrivacyControl hardwareConcurrency deviceMemory javaEnabled
    languages? maxTouchPoints mimeTypes onLine oscpu pdfViewerEnabled platform plugins product(?:Sub)? taintEnabled
    userActivation userAgent(?:Data)? vendor(?:Sub)? webdriver`);
  for (const name of names(window))
    if (!KEPT.test(name) && (!Reflect.deleteProperty(window, name) || name in window))
      Reflect.defineProperty(window, name, {value: undefined});
  for (const name of names(Navigator.prototype))
    if (!NAVIGATOR.test(name)) Reflect.deleteProperty(Navigator.prototype, name);
  Reflect.deleteProperty(Screen.prototype, 'orientation');
  Reflect.deleteProperty(HTMLMediaElement.prototype, 'remote');
  Reflect.deleteProperty(CSS, 'paintWorklet');

  // --- what it may call, and nothing comes of it ---

  /**
   * @param {any} owner
   * @param {string} name
   * @param {Function} value
   */
  const replace = (owner, name, value) =>
    defineProperty(owner, name, {value, configurable: true, enumerable: true, writable: true});
  /**
   * @param {any} type
   * @param {string[]} list
   */
  const silence = (type, list) => {
    const owner = type && (type.prototype || type);
    for (const name of list) if (owner && (owner == window || descriptor(owner, name)?.value)) replace(owner, name, () => {});
  };
  silence(window, 'alert blur close confirm moveBy moveTo open print prompt resizeBy resizeTo stop'.split(' '));
  silence(History, names(History.prototype).filter(name => name != 'constructor'));
  silence(Document, 'ariaNotify browsingTopics execCommand requestStorageAccess'.split(' '));
  silence(
    Element,
    `ariaNotify requestPointerLock setCapture requestFullscreen mozRequestFullScreen webkitRequestFullScreen
    webkitRequestFullscreen`.split(/\s+/),
  );
  silence(HTMLMediaElement, ['setSinkId']);
  silence(HTMLVideoElement, ['requestPictureInPicture']);
  silence(DataTransfer, ['addElement', 'clearData', 'setData', 'setDragImage']);
  silence(DataTransferItemList, ['add', 'clear', 'remove']);
  silence(Screen, ['mozLockOrientation', 'mozUnlockOrientation']);

  // --- what waits for an act ---

  const activation = navigator.userActivation;
  const isActive = activation && descriptor(UserActivation.prototype, 'isActive')?.get;
  const closest = Element.prototype.closest;
  /**
   * Makes methods wait for an act. `moves` says which calls need one, if not all do.
   * @param {any} type
   * @param {string} list
   * @param {((self: unknown, values: any[]) => unknown) | undefined} [moves]
   */
  const guard = (type, list, moves) => {
    const owner = type && (type.prototype || type);
    if (!owner) return;
    for (const name of list.split(' ')) {
      const method = descriptor(owner, name)?.value;
      if (method)
        replace(owner, name, /** @type {(this: unknown, ...values: any[]) => unknown} */ (function (...values) {
          if ((isActive && call(isActive, activation, [])) || (moves && !moves(this, values)))
            return call(method, this, values);
          return undefined;
        }));
    }
  };
  /**
   * A click on a label moves the focus to its field.
   * @param {unknown} target
   * @param {any[]} values
   */
  const clicksLabel = (target, values) =>
    target instanceof Element && (!values[0] || values[0].type == 'click') && call(closest, target, ['label']);
  for (const type of [HTMLElement, SVGElement, window.MathMLElement]) guard(type, 'focus');
  guard(window, 'focus find');
  guard(Element, 'scrollIntoView scrollIntoViewIfNeeded');
  guard(HTMLDialogElement, 'show showModal');
  guard(HTMLElement, 'showPopover togglePopover');
  guard(Selection, 'addRange collapse extend modify selectAllChildren setBaseAndExtent setPosition');
  for (const name of ['Input', 'TextArea', 'Select', 'Button', 'FieldSet', 'Form', 'Object', 'Output'])
    guard(
      /** @type {any} */ (window)['HTML' + name + 'Element'],
      'reportValidity select setSelectionRange setRangeText',
    );
  guard(window.ElementInternals, 'reportValidity');
  // A link that is in no document leads away, too, and no document hears of the click.
  for (const [type, name] of /** @type {[any, string][]} */ ([[HTMLElement, 'click'], [EventTarget, 'dispatchEvent']])) {
    const method = type.prototype[name];
    replace(type.prototype, name, /** @this {unknown} @param {any[]} values */ function (...values) {
      if (this instanceof Element && !this.isConnected && call(closest, this, ['a'])) return undefined;
      return call(method, this, values);
    });
  }
  guard(HTMLElement, 'click', clicksLabel);
  guard(EventTarget, 'dispatchEvent', clicksLabel);
  // A link leads nowhere from a frame: what it names is refused, which some browsers note in the tab's history, and show in
  // the program's place. To a place in the document it scrolls. What a person opens in a tab of its own is the browser's.
  addEventListener('click', event => {
    const link = event.composedPath().find(node => node instanceof Element && node.matches('a[href], area[href]'));
    if (!link || event.defaultPrevented || (event.isTrusted && (event.ctrlKey || event.metaKey || event.shiftKey))) return;
    event.preventDefault();
    const name = /^#(.+)/.exec(/** @type {Element} */ (link).getAttribute('href') || '');
    const place = name && document.getElementById(decodeURIComponent(name[1]));
    if (place) scrollBy(0, place.getBoundingClientRect().top);
  });
  defineProperty(Symbol, 'sandboxKernel', {value: true});
}
