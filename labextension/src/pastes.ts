/**
 * Asks before a larger paste goes in that the screen of the sandbox finds something in. Triage, and no wall.
 *
 * The paste is held while the kernel's process reads it, and while a person decides. Only the kernels of a sandbox whose
 * setting `screen` is on read any.
 */

import { Annotation, EditorState, type Transaction } from '@codemirror/state';
import { type EditorView, ViewPlugin } from '@codemirror/view';
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { EditorExtensionRegistry, type IEditorExtensionRegistry } from '@jupyterlab/codemirror';
import { Widget } from '@lumino/widgets';

import { element } from './dom';
import type { Sandbox } from './sandbox';

/** Characters from which on a paste is read, as in the extension of VS Code. */
const READ_FROM = 40;

/** `sandboxOf` says whose editor an element is of; null for one that is of no sandbox. */
export function askBeforePastes(
  registry: IEditorExtensionRegistry,
  sandboxOf: (editor: Element) => Sandbox | null
): void {
  registry.addExtension({
    name: 'sandbox-kernel:pastes',
    factory: () => EditorExtensionRegistry.createImmutableExtension(holding(sandboxOf))
  });
}

const answered = Annotation.define<boolean>();

function holding(sandboxOf: (editor: Element) => Sandbox | null) {
  let view: EditorView | undefined;
  const here = ViewPlugin.define(one => {
    view = one;
    return {};
  });
  const filter = EditorState.transactionFilter.of(transaction => {
    if (view === undefined || !transaction.isUserEvent('input.paste') || transaction.annotation(answered)) {
      return transaction;
    }
    const text = inserted(transaction);
    const sandbox = text.length < READ_FROM ? null : sandboxOf(view.dom);
    if (!sandbox?.about.screens) {
      return transaction;
    }
    void decide(view, transaction, text, sandbox);
    return [];
  });
  return [here, filter];
}

async function decide(view: EditorView, held: Transaction, text: string, sandbox: Sandbox): Promise<void> {
  const found = await sandbox.reasons(text).catch(() => []); // what is late holds up no paste
  if (found.length === 0 || (await wanted(found))) {
    // As it was, or at the cursor if the text is another one by now.
    const same = view.state.doc.eq(held.startState.doc);
    const spec = same ? { changes: held.changes, selection: held.selection } : view.state.replaceSelection(text);
    view.dispatch({ ...spec, annotations: answered.of(true), userEvent: 'input.paste', scrollIntoView: true });
  }
  view.focus();
}

async function wanted(found: readonly string[]): Promise<boolean> {
  const body = new Widget();
  const list = element('ul', 'sk-Reasons');
  list.append(...found.map(one => element('li', '', one)));
  body.node.append(list);
  const buttons = [Dialog.cancelButton(), Dialog.warnButton({ label: 'Paste' })];
  return (await showDialog({ title: 'Paste this? The screen finds:', body, buttons, defaultButton: 0 })).button.accept;
}

function inserted(transaction: Transaction): string {
  const parts: string[] = [];
  transaction.changes.iterChanges((_from, _to, _begin, _end, text) => parts.push(text.toString()));
  return parts.join('\n');
}
