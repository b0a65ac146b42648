// JupyterLab's own renderers, put together as JupyterLab and Notebook 7 do it: live outputs are trusted.
import '@jupyterlab/rendermime/style/base.css';
import { EditorLanguageRegistry } from '@jupyterlab/codemirror';
import { createMarkdownParser } from '@jupyterlab/markedparser-extension';
import { MathJaxTypesetter } from '@jupyterlab/mathjax-extension';
import { MermaidManager, MermaidMarkdown } from '@jupyterlab/mermaid';
import { MimeModel, RenderMimeRegistry, standardRendererFactories } from '@jupyterlab/rendermime';
import { Widget } from '@lumino/widgets';

const languages = new EditorLanguageRegistry();
for (const language of EditorLanguageRegistry.getDefaultLanguages()) languages.addLanguage(language);
languages.addLanguage({
  name: 'ipythongfm', mime: 'text/x-ipythongfm',
  load: async () => (await import('@codemirror/lang-markdown')).markdown(),
});

// Typesetting goes on after a renderer says it is done; this one can be waited for.
class Typesetter extends MathJaxTypesetter {
  running = new Set();

  typeset(node) {
    const work = super.typeset(node);
    this.running.add(work);
    return work.finally(() => this.running.delete(work));
  }
}

const typesetter = new Typesetter();
const mermaid = new MermaidManager();
const registry = new RenderMimeRegistry({
  initialFactories: standardRendererFactories,
  latexTypesetter: typesetter,
  markdownParser: createMarkdownParser(languages, { blocks: [new MermaidMarkdown({ mermaid })] }),
});

const STREAMS = { stdout: 'application/vnd.jupyter.stdout', stderr: 'application/vnd.jupyter.stderr' };

export async function render(output, host) {
  const type = STREAMS[output.type] ?? (output.type === 'error' ? 'application/vnd.jupyter.stderr' : output.type);
  if (!registry.mimeTypes.includes(type)) return;
  const renderer = registry.createRenderer(type);
  renderer.addClass('jp-OutputArea-output');
  Widget.attach(renderer, host);
  const model = new MimeModel({ data: { [type]: output.value }, metadata: output.metadata ?? {}, trusted: true });
  await renderer.renderModel(model);
  await Promise.all(typesetter.running);
}

let typeset;

// What MathJax knows beyond what it was built with: names that were defined, labels, and the looks of some formulas.
export async function state() {
  typeset ??= await typesetter.mathDocument();
  const input = typeset.inputJax[0];
  // Every table of names that can grow, of which MathJax may hold several under one name.
  const defined = ['macro', 'environment', 'delimiter'].flatMap(kind =>
    [...input.parseOptions.handlers.get(kind)._configuration.items].map(entry => entry.item)
      .filter(table => /^new-|config|ops$|paired/.test(table.name))
      .flatMap(table => [...(table.map?.keys() ?? [])].map(key => `${table.name} ${key}`)));
  const probe = document.createElement('div');
  probe.textContent = String.raw`\(\alpha\frac12\text{a}\R\x\begin{matrix}1&2\end{matrix}\sum_1^2\hbar\boxed{x}\tag{1}\)`;
  document.body.append(probe);
  await typesetter.typeset(probe);
  const looks = probe.innerHTML;
  probe.remove();
  const { options, tags } = input.parseOptions;
  const settings = JSON.stringify([options, tags.constructor.name, tags.counter, tags.allLabels],
    (key, value) => typeof value === 'function' ? String(value) : value);
  return { defined, looks, settings };
}
