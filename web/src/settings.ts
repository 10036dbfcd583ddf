// The settings of a conversation as the user typed them, and the request fields they become. An
// empty setting is not sent: the model's own default holds, and the form shows it.

export interface Settings {
  system: string;
  temperature: string;
  top_p: string;
  top_k: string;
  min_p: string;
  repetition_penalty: string;
  presence_penalty: string;
  frequency_penalty: string;
  seed: string;
  max_tokens: string;
  reasoning_effort: string;
  json_schema: string;
  tools: string;
}
export type SettingKey = keyof Settings;

export const NO_SETTINGS: Settings = {
  system: '', temperature: '', top_p: '', top_k: '', min_p: '', repetition_penalty: '',
  presence_penalty: '', frequency_penalty: '', seed: '', max_tokens: '', reasoning_effort: '',
  json_schema: '', tools: '',
};

export interface NumberSetting {
  key: SettingKey;
  label: string;
  min: number;
  max: number;
  step: number;  // 1: whole numbers only
  // What holds when it is empty and the model says nothing.
  fallback: string;
  hint: string;
}

export const NUMBER_SETTINGS: readonly NumberSetting[] = [
  {key: 'temperature', label: 'Temperature', min: 0, max: 5, step: 0.1, fallback: '1', hint: '0 always takes the likeliest token'},
  {key: 'top_p', label: 'Top p', min: 0, max: 1, step: 0.05, fallback: '1', hint: 'Smallest set of tokens with this probability; 1 is off'},
  {key: 'top_k', label: 'Top k', min: -1, max: 2 ** 31 - 1, step: 1, fallback: 'off', hint: 'So many likeliest tokens; 0 is off'},
  {key: 'min_p', label: 'Min p', min: 0, max: 1, step: 0.01, fallback: '0', hint: 'At least this part of the likeliest token’s probability'},
  {key: 'repetition_penalty', label: 'Repetition penalty', min: 0.01, max: 10, step: 0.05, fallback: '1', hint: 'Above 1 avoids tokens seen before'},
  {key: 'presence_penalty', label: 'Presence penalty', min: -2, max: 2, step: 0.1, fallback: '0', hint: 'Once for each token the reply has already'},
  {key: 'frequency_penalty', label: 'Frequency penalty', min: -2, max: 2, step: 0.1, fallback: '0', hint: 'For each time the reply has it'},
  {key: 'seed', label: 'Seed', min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, fallback: 'random', hint: 'The same request with the same seed gives the same reply'},
  {key: 'max_tokens', label: 'Longest reply', min: 1, max: 2 ** 31 - 1, step: 1, fallback: 'to the window', hint: 'In tokens, reasoning included'},
];

export const EFFORTS: readonly [string, string][] = [
  ['', 'As the model does'], ['none', 'Off'], ['low', 'Low'], ['medium', 'Medium'], ['high', 'High'],
];

export class SettingError extends Error {
  constructor(readonly key: SettingKey, message: string) {
    super(message);
  }
}

export function checkNumber(setting: NumberSetting, text: string): number | undefined {
  if (text.trim() === '') return undefined;
  const value = Number(text);
  const isOpenBelow = setting.key === 'top_p';
  if (!Number.isFinite(value) || value < setting.min || value > setting.max || (isOpenBelow && value === 0))
    throw new SettingError(setting.key, `${setting.label}: a number from ${isOpenBelow ? 'above ' : ''}${setting.min} to ${setting.max}, or nothing`);
  if (setting.step === 1 && !Number.isInteger(value))
    throw new SettingError(setting.key, `${setting.label}: a whole number, or nothing`);
  return value;
}

export function checkSchema(text: string): unknown {
  if (text.trim() === '') return undefined;
  const value = parseJson('json_schema', 'JSON schema', text);
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new SettingError('json_schema', 'JSON schema: an object such as {"type": "object"}');
  return value;
}

// A list of functions, each with or without its {"type": "function"} around it.
export function checkTools(text: string): unknown[] | undefined {
  if (text.trim() === '') return undefined;
  const value = parseJson('tools', 'Tools', text);
  if (!Array.isArray(value)) throw new SettingError('tools', 'Tools: a list such as [{"name": "weather", "parameters": {…}}]');
  return value.map((tool: unknown) => {
    if (typeof tool !== 'object' || tool === null) throw new SettingError('tools', 'Tools: each one is an object with a name');
    return 'function' in tool ? tool : {type: 'function', function: tool};
  });
}

function parseJson(key: SettingKey, label: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new SettingError(key, `${label}: not JSON (${(error as Error).message})`);
  }
}

// Throws SettingError. The system prompt is a message, not a field.
export function requestFields(settings: Settings): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const setting of NUMBER_SETTINGS) {
    const value = checkNumber(setting, settings[setting.key]);
    if (value !== undefined) fields[setting.key] = value;
  }
  if (settings.reasoning_effort) fields['reasoning_effort'] = settings.reasoning_effort;
  const schema = checkSchema(settings.json_schema);
  if (schema !== undefined) fields['response_format'] = {type: 'json_schema', json_schema: {name: 'reply', schema}};
  const tools = checkTools(settings.tools);
  if (tools !== undefined && tools.length > 0) fields['tools'] = tools;
  return fields;
}

// The setting behind a field that the server refused ("tools[0].function.name").
export function settingOf(param: string): SettingKey | undefined {
  const name = /^\w+/.exec(param)?.[0] ?? '';
  if (name === 'response_format') return 'json_schema';
  return name in NO_SETTINGS ? name as SettingKey : undefined;
}
