// Goes before every script of a program, in one block, so that none of its names is the program's.
// No policy covers WebRTC, or keeps a frame from taking the keyboard: the first is taken away, and what moves the focus
// waits for a person's act in the frame, a click or a key in the last five seconds.
{
  for (const name of ['RTCPeerConnection', 'webkitRTCPeerConnection', 'RTCIceTransport', 'WebTransport'])
    if (name in window) Object.defineProperty(window, name, {value: undefined});
  const descriptor = Object.getOwnPropertyDescriptor;
  const call = Reflect.apply;
  const activation = navigator.userActivation;
  const isActive = activation && descriptor(UserActivation.prototype, 'isActive')?.get;
  const closest = Element.prototype.closest;
  /**
   * Makes methods wait for an act. `moves` says which calls need one, if not all do.
   * @param {any} type
   * @param {string} names
   * @param {((self: unknown, values: any[]) => unknown) | undefined} [moves]
   */
  const guard = (type, names, moves) => {
    const owner = type && (type.prototype || type);
    if (!owner) return;
    for (const name of names.split(' ')) {
      const method = descriptor(owner, name);
      if (method && method.value && method.configurable)
        Object.defineProperty(owner, name, {
          /** @param {any[]} values */
          value(...values) {
            if (call(/** @type {Function} */ (isActive), activation, []) || (moves && !moves(this, values)))
              return call(method.value, this, values);
          },
        });
    }
  };
  /**
   * A click on a label moves the focus to its field.
   * @param {unknown} target
   * @param {any[]} values
   */
  const clicksLabel = (target, values) =>
    target instanceof Element && (!values[0] || values[0].type == 'click') && call(closest, target, ['label']);
  if (isActive && self.origin == 'null') {
    for (const type of [HTMLElement, SVGElement, window.MathMLElement]) guard(type, 'focus');
    guard(window, 'focus find');
    guard(HTMLDialogElement, 'show showModal');
    guard(HTMLElement, 'showPopover togglePopover');
    guard(Document, 'execCommand');
    guard(Selection, 'addRange collapse extend modify selectAllChildren setBaseAndExtent setPosition');
    for (const name of ['Input', 'TextArea', 'Select', 'Button', 'FieldSet', 'Form', 'Object', 'Output'])
      guard(
        /** @type {any} */ (window)['HTML' + name + 'Element'],
        'reportValidity select setSelectionRange setRangeText',
      );
    guard(window.ElementInternals, 'reportValidity');
    guard(HTMLElement, 'click', clicksLabel);
    guard(EventTarget, 'dispatchEvent', clicksLabel);
  }
}
