/** One line about the sandbox, and all about it at a click. */

import { Dialog, type ISessionContextDialogs, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { end, restart } from './acts';
import type { Current } from './current';
import { element } from './dom';
import { line, rows } from './words';

export class StatusLine extends Widget {
  private readonly button = element('button', 'sk-StatusLine-button');

  constructor(
    private readonly current: Current,
    private readonly dialogs: ISessionContextDialogs,
    private readonly showFiles: () => void
  ) {
    super();
    this.addClass('sk-StatusLine');
    this.button.type = 'button';
    this.button.title = 'The sandbox of the notebook in front';
    this.button.addEventListener('click', () => void this.tell());
    this.node.append(this.button);
    current.changed.connect(this.onChanged, this);
    this.onChanged();
  }

  private onChanged(): void {
    const { sandbox, state } = this.current;
    this.setHidden(sandbox === null);
    this.button.textContent = sandbox === null ? '' : line(sandbox.about, state);
  }

  private async tell(): Promise<void> {
    const { sandbox, state, session } = this.current;
    if (sandbox === null || session === null) {
      return;
    }
    const body = new Widget();
    const table = element('table', 'sk-About');
    for (const [name, value] of rows(sandbox.about, state)) {
      const row = element('tr');
      const head = element('th', '', name);
      head.scope = 'row';
      row.append(head, element('td', '', value));
      table.append(row);
    }
    body.node.append(table);
    const buttons = [
      Dialog.createButton({ label: 'Files' }),
      Dialog.createButton({ label: 'Restart kernel…' }),
      Dialog.warnButton({ label: 'End sandbox…', accept: false }),
      Dialog.okButton({ label: 'Close' })
    ];
    const { button } = await showDialog({ title: 'Sandbox', body, buttons, defaultButton: 3 });
    if (button.label === 'Files') {
      this.showFiles();
    } else if (button.label === 'Restart kernel…') {
      await restart(session, this.dialogs);
    } else if (button.label === 'End sandbox…') {
      await end(session);
    }
  }
}
