/** What a person can do with a whole sandbox: restart its kernel, end it. Each asks first. */

import { Dialog, type ISessionContext, type ISessionContextDialogs, showDialog } from '@jupyterlab/apputils';

export async function confirmed(title: string, body: string, label: string): Promise<boolean> {
  const buttons = [Dialog.cancelButton(), Dialog.warnButton({ label })];
  return (await showDialog({ title, body, buttons })).button.accept;
}

export async function restart(session: ISessionContext, dialogs: ISessionContextDialogs): Promise<void> {
  await dialogs.restart(session);
}

export async function end(session: ISessionContext): Promise<void> {
  const body = 'Its kernel is shut down. Variables and the files in the sandbox are removed.';
  if (await confirmed('End the sandbox?', body, 'End')) {
    await session.shutdown();
  }
}
