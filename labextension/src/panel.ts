/** The panel "Sandbox files": what is in the sandbox of the notebook, files in, files out. */

import type { ISessionContextDialogs } from '@jupyterlab/apputils';
import type { Message } from '@lumino/messaging';
import type { Drag } from '@lumino/dragdrop';
import { Widget } from '@lumino/widgets';

import { confirmed, end, restart } from './acts';
import type { Bring } from './bring';
import type { Current } from './current';
import { button, element } from './dom';
import { type Behaviour, type Entry, downloadName, text } from './parse';
import { MAX_FILES, Refused, type Sandbox } from './sandbox';
import { Transfers } from './transfers';
import { behaviourLine, bytes } from './words';

const SHOWN = 1000;
/** Between two lists that cells bring about. */
const GAP_MS = 1000;
export const DRAGGED = 'application/x-jupyter-icontents';

export class FilesPanel extends Widget {
  private readonly status = element('div', 'sk-Status');
  private readonly note = element('div', 'sk-Note');
  private readonly list = element('ul', 'sk-List');
  private readonly behaviour = element('details', 'sk-Behaviour');
  private readonly tools = element('div', 'sk-Tools');
  private readonly transfers = new Transfers();
  private readonly chooser = element('input');
  private shownOf: Sandbox | null = null;
  private shownBehaviour = '';
  private names = new Set<string>();
  private listing = false;
  private again = false;
  /** A sandbox is awaited, whose files are to be listed. */
  private pending = false;
  private timer: number | undefined;

  constructor(
    private readonly current: Current,
    private readonly bring: Bring,
    dialogs: ISessionContextDialogs
  ) {
    super();
    this.addClass('sk-Panel');
    this.title.label = 'Sandbox files';
    this.chooser.type = 'file';
    this.chooser.multiple = true;
    this.chooser.hidden = true;
    this.chooser.addEventListener('change', () => {
      void this.upload([...(this.chooser.files ?? [])]);
      this.chooser.value = '';
    });
    this.tools.append(
      button('Upload', 'Put files of yours into the sandbox', () => this.chooser.click()),
      button('Refresh', 'List the files anew', () => void this.refresh()),
      button('Restart', 'Restart the kernel: variables go, files stay', () => {
        if (current.session !== null) {
          void restart(current.session, dialogs);
        }
      }),
      button('End', 'End the sandbox: variables and files go', () => {
        if (current.session !== null) {
          void end(current.session);
        }
      })
    );
    this.list.setAttribute('aria-label', 'Files in the sandbox');
    this.note.setAttribute('role', 'status');
    this.node.append(this.status, this.tools, this.chooser, this.transfers.node, this.note, this.behaviour, this.list);
    current.changed.connect(this.onChanged, this);
    current.worked.connect(this.refreshSoon, this);
    this.onChanged();
  }

  /** Write files into the sandbox; one that takes the place of another only when that is wanted. */
  async upload(files: readonly File[]): Promise<void> {
    for (const file of files) {
      await this.put(file, file.name);
    }
  }

  /** Write what lies in the server's folders into the sandbox. */
  async bringIn(paths: readonly string[]): Promise<void> {
    for (const path of paths) {
      await this.put(path, this.bring.target(path));
    }
  }

  handleEvent(event: Event): void {
    switch (event.type) {
      case 'dragenter':
      case 'dragover':
        this.over(event as DragEvent, [...((event as DragEvent).dataTransfer?.types ?? [])].includes('Files'));
        break;
      case 'lm-dragenter':
      case 'lm-dragover': {
        const drag = event as Drag.Event;
        this.over(drag, drag.mimeData.hasData(DRAGGED));
        drag.dropAction = 'copy';
        break;
      }
      case 'dragleave':
      case 'lm-dragleave':
        this.removeClass('sk-mod-over');
        break;
      case 'drop':
        this.over(event as DragEvent, true);
        this.removeClass('sk-mod-over');
        void this.upload(dropped((event as DragEvent).dataTransfer, folder => this.say(folder)));
        break;
      case 'lm-drop': {
        const drag = event as Drag.Event;
        this.over(drag, true);
        this.removeClass('sk-mod-over');
        const paths: unknown = drag.mimeData.getData(DRAGGED);
        void this.bringIn(Array.isArray(paths) ? paths.filter(one => typeof one === 'string') : []);
        break;
      }
    }
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    for (const kind of EVENTS) {
      this.node.addEventListener(kind, this);
    }
  }

  protected override onBeforeDetach(message: Message): void {
    for (const kind of EVENTS) {
      this.node.removeEventListener(kind, this);
    }
    super.onBeforeDetach(message);
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    void this.current.look();
    this.refreshSoon();
  }

  private async put(source: File | string, name: string): Promise<void> {
    const sandbox = this.current.sandbox;
    if (sandbox === null) {
      this.say('The notebook in front has no sandbox.');
      return;
    }
    const shown = text(name, 200);
    if (this.names.has(name) && !(await confirmed('Replace the file?', `"${shown}" is in the sandbox already.`, 'Replace'))) {
      return;
    }
    const done = await this.transfers.run(name, async (progress, signal) => {
      const blob = typeof source === 'string' ? await this.bring.fetch(source, signal) : source;
      await sandbox.upload(blob, name, progress, signal);
    });
    if (done) {
      this.refreshSoon();
    }
  }

  private over(event: DragEvent | Drag.Event, taken: boolean): void {
    if (taken && this.current.sandbox !== null) {
      event.preventDefault();
      event.stopPropagation();
      this.addClass('sk-mod-over');
    }
  }

  private say(what: string): void {
    this.note.textContent = what;
  }

  private onChanged(): void {
    const { sandbox, state } = this.current;
    this.tools.hidden = sandbox === null;
    // How the sandbox stands is in the status line.
    this.status.textContent = sandbox === null ? 'The notebook in front has no sandbox.' : (state?.problem ?? '');
    this.status.hidden = this.status.textContent === '';
    this.showBehaviour(state?.behaviour ?? null);
    if (sandbox?.kernel !== this.shownOf?.kernel) {
      this.shownOf = sandbox;
      this.fill([], true);
      this.say('');
      this.refreshSoon();
    } else if (sandbox !== null && state?.state === 'none' && this.names.size > 0) {
      this.fill([], true);
    } else if (this.pending && state !== null && state.state !== 'starting') {
      this.refreshSoon();
    }
  }

  private refreshSoon(): void {
    if (this.timer === undefined) {
      this.timer = window.setTimeout(() => {
        this.timer = undefined;
        void this.refreshIfThere();
      }, GAP_MS);
    }
  }

  /** List without starting a sandbox for it. */
  private async refreshIfThere(): Promise<void> {
    const { sandbox, state } = this.current;
    const there = state?.state === 'idle' || state?.state === 'busy';
    this.pending = sandbox !== null && !there;
    if (there && this.isVisible) {
      await this.refresh();
    }
  }

  private async refresh(): Promise<void> {
    const sandbox = this.current.sandbox;
    this.again = this.listing;
    if (sandbox === null || this.listing) {
      return;
    }
    this.listing = true;
    try {
      const { files, complete } = await sandbox.list();
      if (this.current.sandbox?.kernel === sandbox.kernel) {
        this.fill(files, complete);
      }
    } catch (error) {
      this.say(error instanceof Refused ? error.message : 'The files could not be listed.');
    } finally {
      this.listing = false;
    }
    if (this.again) {
      this.refreshSoon();
    }
  }

  /** What cells did that matters; nothing is shown where there is nothing to say. */
  private showBehaviour(said: Behaviour | null): void {
    this.behaviour.hidden = said === null || said.rows.length === 0;
    const shown = JSON.stringify(said);
    if (said === null || shown === this.shownBehaviour) {
      return; // drawn anew, it would lose what a person has marked in it
    }
    this.shownBehaviour = shown;
    const head = element('summary', said.safe ? '' : 'sk-mod-failed', behaviourLine(said));
    const list = element('ul', 'sk-List');
    for (const row of said.rows) {
      const where = row.cell === null ? '' : `, first in [${row.cell}]`;
      const item = element('li', '', row.reason);
      item.title = `${row.code}: ${row.score} points, ${row.times} times${where}`;
      list.append(item);
    }
    this.behaviour.replaceChildren(head, list);
  }

  private fill(files: readonly Entry[], complete: boolean): void {
    this.names = new Set(files.map(file => file.path));
    this.list.replaceChildren(...files.slice(0, SHOWN).map(file => this.row(file)));
    const total = complete ? `${files.length}` : `${Math.min(files.length, MAX_FILES)} or more`;
    if (files.length > SHOWN || !complete) {
      this.say(`${Math.min(SHOWN, files.length)} of ${total} files are shown.`);
    } else {
      this.say(files.length === 0 && this.current.sandbox !== null ? 'No files yet. Drop some here.' : '');
    }
  }

  private row(file: Entry): HTMLLIElement {
    const row = element('li', 'sk-File');
    const shown = text(file.path, 1024);
    const name = element('bdi', 'sk-File-name', shown);
    const when = file.modified === null ? '' : new Date(file.modified * 1000).toLocaleString();
    row.title = [shown, bytes(file.size), when].filter(part => part !== '').join('\n');
    row.append(
      name,
      element('span', 'sk-File-size', bytes(file.size)),
      button('↓', `Download ${shown}`, () => void this.download(file)),
      button('×', `Delete ${shown}`, () => void this.remove(file))
    );
    return row;
  }

  private async download(file: Entry): Promise<void> {
    const sandbox = this.current.sandbox;
    if (sandbox === null) {
      return;
    }
    await this.transfers.run(file.path, async (progress, signal) => {
      const blob = await sandbox.download(file.path, progress, signal);
      const link = element('a');
      link.href = URL.createObjectURL(blob);
      link.download = downloadName(file.path);
      link.click();
      window.setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    });
  }

  private async remove(file: Entry): Promise<void> {
    const sandbox = this.current.sandbox;
    const body = `"${text(file.path, 200)}" is removed from the sandbox.`;
    if (sandbox === null || !(await confirmed('Delete the file?', body, 'Delete'))) {
      return;
    }
    try {
      await sandbox.remove(file.path);
    } catch (error) {
      this.say(error instanceof Refused ? error.message : 'The file could not be deleted.');
      return;
    }
    await this.refresh();
  }
}

const EVENTS = ['dragenter', 'dragover', 'dragleave', 'drop', 'lm-dragenter', 'lm-dragover', 'lm-dragleave', 'lm-drop'];

function dropped(data: DataTransfer | null, refuse: (why: string) => void): File[] {
  const files: File[] = [];
  for (const item of data?.items ?? []) {
    const file = item.getAsFile();
    if (item.webkitGetAsEntry()?.isDirectory) {
      refuse('A folder is not taken as a whole: drop its files.');
    } else if (file !== null) {
      files.push(file);
    }
  }
  return files;
}
