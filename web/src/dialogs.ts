// The two questions the page asks: for an API key, and whether something shall be deleted.
import {hasKey, setKey} from './api.js';
import {el} from './dom.js';

function open(dialog: HTMLDialogElement): Promise<string> {
  document.body.append(dialog);
  dialog.showModal();
  return new Promise(resolve => dialog.addEventListener('close', () => {
    dialog.remove();
    resolve(dialog.returnValue);
  }));
}

let asking: Promise<boolean> | undefined;

// One dialog, whoever asks meanwhile. True: a key was given.
export function askForKey(): Promise<boolean> {
  asking ??= ask().finally(() => asking = undefined);
  return asking;
}

async function ask(): Promise<boolean> {
  const input = el('input', {type: 'password', id: 'key', autocomplete: 'off', required: true, spellcheck: 'false'});
  const dialog = el('dialog', {class: 'dialog', 'aria-labelledby': 'key-title'},
      el('form', {method: 'dialog'},
          el('h2', {id: 'key-title'}, hasKey() ? 'That API key is not known' : 'An API key, please'),
          el('p', {}, 'This server wants one (--api-key). It stays in this tab (sessionStorage) and goes to this server only.'),
          el('label', {for: 'key'}, 'API key'), input,
          el('div', {class: 'row'},
              el('button', {value: '', formnovalidate: true}, 'Cancel'),
              el('button', {value: 'ok', class: 'primary'}, 'Use it'))));
  // Enter takes a form's first button.
  input.addEventListener('keydown', event => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    if (input.value.trim()) dialog.close('ok');
  });
  if (await open(dialog) !== 'ok') return false;
  setKey(input.value.trim());
  return true;
}

export async function confirmDelete(question: string, explanation: string): Promise<boolean> {
  const dialog = el('dialog', {class: 'dialog', 'aria-labelledby': 'confirm-title'},
      el('form', {method: 'dialog'},
          el('h2', {id: 'confirm-title'}, question), el('p', {}, explanation),
          el('div', {class: 'row'},
              el('button', {value: '', autofocus: true}, 'Cancel'),
              el('button', {value: 'ok', class: 'danger'}, 'Delete'))));
  return await open(dialog) === 'ok';
}
