// What a person can do here: what it does, which call does it, and which command line does the same.
import { connection, type Person } from './api.svelte'

export interface Field {
  key: string
  label: string
  required?: boolean
  choices?: string[]
  value?: string
  // check is 'yes' or empty, number is digits, area has lines, password is not shown; else it is a line of text.
  kind?: 'check' | 'number' | 'area' | 'password'
  // lines is the height of an area.
  lines?: number
  hint?: string
}

export interface Action {
  word: string
  // of is what it is about; empty where the word says it all.
  of?: string
  says: string
  warns?: string
  scope: Person['scope']
  fields?: Field[]
  // refused says why it cannot be done now; empty when it can, as far as the page can tell. The controller has the last word.
  refused?: string
  // refusedWith is refused with what a person has filled in.
  refusedWith?(values: Record<string, string>): string
  // once says that a repeat after a lost answer would do it again.
  once?: boolean
  command(values: Record<string, string>): string
  // request names the work: asked again under the same name it is done once.
  call(values: Record<string, string>, request: string): Promise<unknown>
  // evidence is what a person must see beside the fields, read anew when the dialog opens.
  evidence?(): Promise<Evidence>
  // shown is what only this answer has, such as a secret.
  shown?(answer: unknown): Shown
}

// Evidence is a sentence and facts, each with its name.
export interface Evidence {
  says: string
  facts: [string, string][]
}

export interface Shown {
  says: string
  text: string
}

export const comment: Field = { key: 'comment', label: 'Why (audit log)' }

export const quoted = (s: string): string => (/^[\w.:/@=*-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`)
export const flag = (name: string, value: string | undefined): string => (value ? ` --${name} ${quoted(value)}` : '')

// refusal says why it may not be done: a right that is missing comes first, as no wait mends it.
export function refusal(action: Pick<Action, 'refused' | 'scope'>): string {
  if (!connection.may(action.scope)) return `your token has scope ${connection.person?.scope}, this needs ${action.scope}`
  return action.refused ?? ''
}

// list reads words between commas or spaces.
export const list = (s: string | undefined): string[] => (s ?? '').split(/[\s,]+/).filter(Boolean)
