/** Elements, made of tags and texts: nothing that a kernel says is ever read as HTML. */

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className = '',
  text = ''
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (className !== '') {
    made.className = className;
  }
  made.textContent = text;
  return made;
}

export function button(label: string, title: string, act: () => void): HTMLButtonElement {
  const made = element('button', 'sk-Button', label);
  made.type = 'button';
  made.title = title;
  made.addEventListener('click', act);
  return made;
}
