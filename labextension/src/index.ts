/** The extension: the sandbox's files in a panel, a line about it, an entry in a menu, and frames that fit. */

import { ILabShell, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISessionContextDialogs, IThemeManager, SessionContextDialogs } from '@jupyterlab/apputils';
import { IEditorExtensionRegistry } from '@jupyterlab/codemirror';
import { IConsoleTracker } from '@jupyterlab/console';
import { IFileBrowserFactory } from '@jupyterlab/filebrowser';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStatusBar } from '@jupyterlab/statusbar';
import { LabIcon } from '@jupyterlab/ui-components';

import { Bring } from './bring';
import { Current, isOurs } from './current';
import { serveFrames } from './frames';
import { frameHeavy } from './heavy';
import { FilesPanel } from './panel';
import { askBeforePastes } from './pastes';
import { record, text } from './parse';
import { StatusLine } from './status';

const SHOW = 'sandbox-kernel:show-files';
const BRING_IN = 'sandbox-kernel:bring-in';

const icon = new LabIcon({
  name: 'sandbox-kernel:box',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" ' +
    'd="M12 2 3 6.5v11L12 22l9-4.5v-11zm0 2.2 5.9 3L12 10.1 6.1 7.2zM5 8.9l6 3v7.3l-6-3zm8 10.3v-7.3l6-3v7.3z"/></svg>'
});

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'sandbox-kernel:plugin',
  description: 'Files and state of the sandbox behind a notebook.',
  autoStart: true,
  optional: [INotebookTracker, IConsoleTracker, ISessionContextDialogs, IFileBrowserFactory, IStatusBar, ILabShell, IEditorExtensionRegistry],
  activate: (
    app: JupyterFrontEnd,
    notebooks: INotebookTracker | null,
    consoles: IConsoleTracker | null,
    given: ISessionContextDialogs | null,
    browsers: IFileBrowserFactory | null,
    statusBar: IStatusBar | null,
    lab: ILabShell | null,
    editors: IEditorExtensionRegistry | null
  ) => {
    if (notebooks === null && consoles === null) {
      return; // a page without kernels, such as Notebook's list of files
    }
    const dialogs = given ?? new SessionContextDialogs();
    const { contents, kernelspecs, serverSettings } = app.serviceManager;
    const current = new Current(kernelspecs);
    notebooks?.currentChanged.connect((_, one) => current.use(one?.sessionContext ?? null));
    consoles?.currentChanged.connect((_, one) => current.use(one?.sessionContext ?? null));
    lab?.currentChanged.connect((_, { newValue }) => {
      // From a console back to the notebook that was the current one before: its tracker says nothing.
      const known = [notebooks?.currentWidget, consoles?.currentWidget].find(one => one && one === newValue);
      if (known) {
        current.use(known.sessionContext);
      }
    });
    current.use((notebooks?.currentWidget ?? consoles?.currentWidget)?.sessionContext ?? null);

    const panel = new FilesPanel(current, new Bring(contents, serverSettings, current), dialogs);
    panel.id = 'sandbox-kernel-files';
    panel.title.caption = 'Sandbox files';
    if (lab !== null) {
      panel.title.label = '';
      panel.title.icon = icon;
    }
    app.shell.add(panel, 'right', { rank: 700, type: 'Sandbox files' });

    app.commands.addCommand(SHOW, {
      label: 'Show Sandbox Files',
      icon,
      execute: () => {
        const shell = app.shell as JupyterFrontEnd.IShell & { expandRight?: (id?: string) => void };
        if (lab === null) {
          shell.expandRight?.(panel.id); // Notebook 7 shows one of its side panels so
        }
        app.shell.activateById(panel.id);
      }
    });
    const status = new StatusLine(current, dialogs, () => void app.commands.execute(SHOW));
    if (statusBar !== null) {
      statusBar.registerStatusItem('sandbox-kernel:status', {
        item: status,
        align: 'left',
        rank: 20,
        isActive: () => current.sandbox !== null,
        activeStateChanged: current.changed
      });
    } else {
      status.id = 'sandbox-kernel-status';
      app.shell.add(status, 'menu', { rank: 900 });
    }

    if (editors !== null) {
      askBeforePastes(editors, editor => {
        const front = [notebooks?.currentWidget, consoles?.currentWidget].find(one => one?.node.contains(editor));
        return front?.sessionContext === current.session ? current.sandbox : null;
      });
    }

    if (browsers !== null) {
      const selected = () =>
        [...(browsers.tracker.currentWidget?.selectedItems() ?? [])].filter(one => one.type !== 'directory');
      app.commands.addCommand(BRING_IN, {
        label: 'Bring into the Sandbox',
        icon,
        isVisible: () => current.sandbox !== null && selected().length > 0,
        execute: async () => {
          await app.commands.execute(SHOW);
          await panel.bringIn(selected().map(one => one.path));
        }
      });
      app.contextMenu.addItem({ command: BRING_IN, selector: '.jp-DirListing-item[data-isdir="false"]', rank: 5 });
    }
  }
};

const frames: JupyterFrontEndPlugin<void> = {
  id: 'sandbox-kernel:frames',
  description: 'Frames of outputs as high as what they show, in the colours of the theme, with their libraries; large outputs in frames.',
  autoStart: true,
  optional: [IThemeManager, INotebookTracker],
  activate: (app: JupyterFrontEnd, themes: IThemeManager | null, notebooks: INotebookTracker | null) => {
    serveFrames(themes, notebooks);
    notebooks?.widgetAdded.connect((_, { content, sessionContext }) => {
      const specs = app.serviceManager.kernelspecs;
      frameHeavy(content.rendermime, async () => {
        await specs.ready;
        // What a notebook brings along is drawn before it has a kernel.
        const said = text(record(content.model?.getMetadata('kernelspec'))['name'], 200);
        return isOurs(specs.specs?.kernelspecs[sessionContext.session?.kernel?.name ?? said]);
      });
    });
  }
};

export default [plugin, frames];
