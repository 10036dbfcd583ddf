// The form of a conversation's settings. Each change is checked and kept at once.
import {byId, el} from './dom.js';
import type {Model} from './server_status.js';
import {
  checkNumber, checkSchema, checkTools, EFFORTS, NO_SETTINGS, NUMBER_SETTINGS, requestFields, SettingError,
  type NumberSetting, type SettingKey, type Settings,
} from './settings.js';

type Control = HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement;

export class SettingsView {
  private readonly controls = new Map<SettingKey, Control>();
  private readonly errors = new Map<SettingKey, HTMLElement>();
  private settings: Settings = NO_SETTINGS;

  constructor(private readonly changed: (settings: Settings) => void) {
    const system = el('textarea', {rows: 3, placeholder: 'None'});
    const effort = el('select', {}, ...EFFORTS.map(([value, label]) => el('option', {value}, label)));
    const schema = el('textarea', {rows: 3, class: 'mono', placeholder: 'None', spellcheck: 'false'});
    const tools = el('textarea', {rows: 3, class: 'mono', placeholder: 'None', spellcheck: 'false'});
    byId('view-settings').append(
        el('p', {class: 'note'}, 'Of this conversation, and of those begun after it. What is empty is left to the model.'),
        this.field('system', 'System prompt', system, ''),
        el('div', {class: 'grid'}, ...NUMBER_SETTINGS.map(setting => this.numberField(setting))),
        this.field('reasoning_effort', 'Reasoning', effort, 'For models that reason before they answer'),
        this.field('json_schema', 'JSON schema', schema, 'The reply is held to it, token by token'),
        this.field('tools', 'Tools', tools, 'A list of functions the model may call; you answer for them'),
        el('button', {type: 'button', class: 'wide-button', onclick: () => this.reset()}, 'Back to the model’s defaults'));
  }

  show(settings: Settings): void {
    this.settings = settings;
    for (const [key, control] of this.controls) {
      control.value = settings[key];
      this.check(key);
    }
  }

  // The defaults that hold for empty settings.
  showModel(model: Model | undefined): void {
    const defaults = model?.meta?.default_sampling ?? {};
    for (const setting of NUMBER_SETTINGS) {
      const control = this.controls.get(setting.key);
      const value = defaults[setting.key];
      if (control instanceof HTMLInputElement)
        control.placeholder = value === undefined || (setting.key === 'top_k' && value <= 0) ? setting.fallback : String(value);
    }
  }

  // The fields of a request; or nothing, and the setting that is wrong is shown.
  fields(settings: Settings): Record<string, unknown> | SettingKey {
    try {
      return requestFields(settings);
    } catch (error) {
      if (error instanceof SettingError) return error.key;
      throw error;
    }
  }

  focus(key: SettingKey): void {
    const control = this.controls.get(key);
    control?.scrollIntoView({block: 'center'});
    control?.focus();
  }

  private field(key: SettingKey, label: string, control: Control, hint: string): HTMLElement {
    const id = `setting-${key}`;
    const error = el('span', {class: 'field-error', id: `${id}-error`, role: 'alert'});
    control.id = id;
    control.setAttribute('aria-describedby', `${id}-hint ${id}-error`);
    control.addEventListener('input', () => {
      this.settings = {...this.settings, [key]: control.value};
      this.check(key);
      this.changed(this.settings);
    });
    this.controls.set(key, control);
    this.errors.set(key, error);
    return el('div', {class: 'field'}, el('label', {for: id}, label), control, el('span', {class: 'hint', id: `${id}-hint`}, hint), error);
  }

  // Not type=number: it drops what it cannot read, and a wheel over it changes it.
  private numberField(setting: NumberSetting): HTMLElement {
    return this.field(setting.key, setting.label,
        el('input', {type: 'text', inputmode: 'decimal', placeholder: setting.fallback, autocomplete: 'off'}), setting.hint);
  }

  private check(key: SettingKey): void {
    let message = '';
    try {
      const number = NUMBER_SETTINGS.find(setting => setting.key === key);
      if (number) checkNumber(number, this.settings[key]);
      if (key === 'json_schema') checkSchema(this.settings[key]);
      if (key === 'tools') checkTools(this.settings[key]);
    } catch (error) {
      message = (error as Error).message;
    }
    const control = this.controls.get(key);
    if (message) control?.setAttribute('aria-invalid', 'true');
    else control?.removeAttribute('aria-invalid');
    const shown = this.errors.get(key);
    if (shown && shown.textContent !== message) shown.textContent = message;
  }

  private reset(): void {
    this.show({...NO_SETTINGS});
    this.changed(this.settings);
  }
}
