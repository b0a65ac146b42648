// Runs the scripts of a figure where no frame of the host's does: with `outputs = trusted`, whose HTML stays as it is.
// The figure's own scripts are `text/later`, and its libraries are packed as the host packs them (policy/frame_libraries.py).
{
  const SIGNS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=/?@^_`{|}~';
  const LATE = 'text/later';
  /**
   * @param {string} packed the hash, the bytes of the script and those of what is deflated
   * @param {string} text what is deflated, in 85 signs
   */
  const unpack = (packed, text) => {
    const bytes = new Uint8Array((text.length / 5) * 4);
    const view = new DataView(bytes.buffer);
    const values = new Map([...SIGNS].map((sign, value) => [sign, value]));
    for (let i = 0, at = 0; i < bytes.length; i += 4) {
      let number = 0;
      for (const end = at + 5; at < end; at++) number = number * 85 + (values.get(text[at]) ?? 0);
      view.setUint32(i, number);
    }
    const deflated = new Blob([bytes.subarray(0, Number(packed.split(':')[2]))]).stream();
    return new Response(deflated.pipeThrough(new DecompressionStream('deflate-raw'))).text();
  };
  const run = async () => {
    const late = [...document.scripts].filter(script => script.type === LATE);
    // Another figure of the page looks for its own: these are taken.
    for (const script of late) script.type = 'text/taken';
    for (const script of late) {
      const packed = script.getAttribute('data-packed');
      const text = script.textContent || '';
      try {
        (0, eval)(packed ? await unpack(packed, text) : text);
      } catch (error) {
        reportError(error);
      }
    }
  };
  // A frame of the host's runs this script late, too, and all others by itself.
  const own = document.currentScript;
  if (!(own instanceof HTMLScriptElement && own.type === LATE)) {
    if (document.readyState === 'loading') addEventListener('DOMContentLoaded', run);
    else run();
  }
}
