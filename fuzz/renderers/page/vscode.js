// VS Code's notebook renderers in a trusted workspace, as its extensions markdown-language-features, markdown-math and
// notebook-renderers put them together: markdown-it with raw HTML for Markdown and for LaTeX, innerHTML for HTML and SVG,
// and innerHTML again for what looks like a link in a traceback.
import katex from '@vscode/markdown-it-katex';
import MarkdownIt from 'markdown-it';

const markdown = new MarkdownIt({
  html: true,
  linkify: true,
  highlight: (code, language) => {
    const text = markdown.utils.escapeHtml(code);
    const name = markdown.utils.escapeHtml(language);
    return language ? `<div class="vscode-code-block" data-vscode-code-block-lang="${name}">${text}</div>` : text;
  },
});
markdown.linkify.set({ fuzzyLink: false });
markdown.use(katex.default ?? katex, { globalGroup: true, enableBareBlocks: true, enableFencedBlocks: true });
markdown.renderer.rules.heading_open = (tokens, index, options, env, self) => {
  const title = tokens[index + 1].children.reduce((text, token) => text + token.content, '');
  tokens[index].attrSet('id', encodeURI(title.trim().toLowerCase().replace(/\s+/g, '-').replace(/["'<>&]/g, '')));
  return self.renderToken(tokens, index, options);
};

const IMAGES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);
const HTML_LINK = /<a\s+(?:[^>]*?\s+)?href=(["'])(.*?)\1[^>]*?>.*?<\/a>/gi;
const WEB_LINK = /(?:[a-zA-Z][a-zA-Z0-9+.-]{2,}:\/\/|data:|www\.)[^\s\u0000-\u0020\u007f-\u009f"]{2,}[^\s\u0000-\u0020\u007f-\u009f"')}\],:;.!?]/gu;

export async function render(output, host) {
  const { type, value } = output;
  if (type === 'text/markdown' || type === 'text/latex') {
    const preview = document.createElement('div');
    preview.id = 'preview';
    host.attachShadow({ mode: 'open' }).append(preview);
    preview.innerHTML = markdown.render(value);
  } else if (type === 'text/html' || type === 'image/svg+xml') {
    const element = document.createElement('div');
    element.innerHTML = value;
    host.append(element);
    for (const script of [...element.getElementsByTagName('script')]) {
      const again = document.createElement('script');
      again.text = script.innerText;
      for (const key of ['type', 'src', 'nonce', 'noModule', 'async']) {
        const set = script[key] || script.getAttribute(key);
        if (set) again.setAttribute(key, set);
      }
      element.appendChild(again).remove();
    }
  } else if (IMAGES.has(type)) {
    const image = document.createElement('img');
    const bytes = Uint8Array.from(atob(value.replace(/\s/g, '')), one => one.charCodeAt(0));
    image.src = URL.createObjectURL(new Blob([bytes], { type }));
    host.append(image);
  } else if (type === 'error') {
    const stack = value.replace(/\x1b\[4\dm/g, '').replace(/(?<=\x1b\[[\d;]*?);4\d(?=m)/g, '')
      .replace(/\x1b\[38;.*?\d+m/g, '\x1b[39m');
    host.append(text(places(stack.split('\n')).join('\n'), true));
  } else if (['stdout', 'stderr', 'text/plain'].includes(type)) {
    host.append(text(value, false));
  }
}

const COLOURS = /\x1b\[.+?m/g;
const FILE = /File\s+(?:\x1b\[.+?m)?(.+):(\d+)/;
const NUMBERED = /^((?:\x1b\[.+?m|\s|-|>)*)(\d+)(?:\x1b\[.+?m)*( .*)/;
const CELL = /((?:\x1b\[.+?m)*Cell(?:\x1b\[.+?m|\s)*In(?:\x1b\[.+?m|\s)*\[(\d+)\](?:\x1b\[.+?m|\s|,)+)line (\d+).*/;
const INPUT = /Input\s+?(?:\x1b\[.+?m)(In\s*\[(\d+)\])(.*)/;

// Files, cells and numbers of lines become links, which are written as HTML into the text.
function places(lines) {
  let place = '', between = '';
  const plain = line => line.replace(COLOURS, '').trim();
  return lines.map(line => {
    const file = FILE.exec(line), cell = CELL.exec(line), input = INPUT.exec(line);
    if (file) [place, between] = [plain(file[1]), ':'];
    else if (cell) {
      [place, between] = [plain(line.replace(CELL, 'vscode-notebook-cell:?execution_count=$2')), '&line='];
      const link = line.replace(CELL, `<a href='${place}&line=$3'>line $3</a>`);
      return line.replace(CELL, `$1${link}`);
    } else if (input) {
      [place, between] = [plain(line.replace(INPUT, 'vscode-notebook-cell:?execution_count=$2')), '&line='];
      const link = line.replace(INPUT, `<a href='${place}'>$1</a>`);
      return line.replace(INPUT, `Input ${link}$3`);
    } else if (line.trim() === '') place = '';
    else if (place)
      return line.replace(NUMBERED, (all, before, number, after) =>
        `${before}<a href='${place}${between}${number}'>${number}</a>${after}`);
    return line;
  });
}

// What stands between two sequences of colours is looked through for links.
function text(source, trusted) {
  const root = document.createElement('span');
  for (const chunk of source.split(/\x1b\[[^ABCDHIJKfhmpsu]*[ABCDHIJKfhmpsu]/)) {
    for (const line of chunk.split('\n')) {
      const span = document.createElement('span');
      links(span, `${line}\n`, trusted ? [HTML_LINK, WEB_LINK] : [WEB_LINK]);
      root.append(span);
    }
  }
  return root;
}

function links(span, line, [expression, ...others]) {
  if (!expression || line.length > 2000) {
    span.append(line);
    return;
  }
  let position = 0;
  for (const match of line.matchAll(expression)) {
    links(span, line.slice(position, match.index), others);
    position = match.index + match[0].length;
    const element = document.createElement(expression === HTML_LINK ? 'span' : 'a');
    if (expression === HTML_LINK) element.innerHTML = match[0];
    else Object.assign(element, { href: match[0], textContent: match[0] });
    span.append(element);
  }
  links(span, line.slice(position), others);
}

// KaTeX keeps nothing from one formula to the next, as long as this stays the same.
export async function state() {
  const looks = markdown.render(String.raw`$\alpha\frac12\R\x\hbar\boxed{x}$`);
  return { defined: [], looks, settings: '' };
}
