// Light, dark, or as the system says. The choice is kept in localStorage.
import {byId, icon} from './dom.js';
import {browserStore} from './storage.js';

const THEMES = ['auto', 'light', 'dark'] as const;
type Theme = typeof THEMES[number];
const KEY = 'invar.theme';
const NAMES: Record<Theme, string> = {auto: 'as the system', light: 'light', dark: 'dark'};

function stored(): Theme {
  const value = browserStore.getItem(KEY);
  return THEMES.find(theme => theme === value) ?? 'auto';
}

export function startTheme(): void {
  const button = byId('theme');
  let theme = stored();
  const apply = (): void => {
    if (theme === 'auto') document.documentElement.removeAttribute('data-theme');
    else document.documentElement.setAttribute('data-theme', theme);
    const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? 'auto';
    const label = `Theme: ${NAMES[theme]}; switch to ${NAMES[next]}`;
    button.setAttribute('aria-label', label);
    button.title = label;
    button.replaceChildren(icon(theme));
  };
  button.addEventListener('click', () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? 'auto';
    apply();
    try {
      browserStore.setItem(KEY, theme);
    } catch {
      // No room: it holds until the page is left.
    }
  });
  apply();
}
