// The pages, their keys and where they are. All but the first are loaded behind it.
import type { Component } from 'svelte'
import type * as Lazy from './pages/lazy'

interface Place {
  key: string
  at: string
  name: string
  // says is there of those that "More" leads to.
  says?: string
  list?: keyof typeof Lazy
  one?: keyof typeof Lazy
}

export const places: Place[] = [
  { key: 'f', at: '', name: 'Fleet' },
  { key: 'm', at: 'machines', name: 'Machines', list: 'Machines', one: 'Machine' },
  { key: 'o', at: 'operations', name: 'Operations', list: 'Operations', one: 'Operation' },
  { key: 'r', at: 'rollouts', name: 'Rollouts', list: 'Rollouts', one: 'Rollout' },
  { key: 'w', at: 'workflows', name: 'Workflows', list: 'Workflows', one: 'Workflow' },
  { key: 's', at: 'sites', name: 'Sites', list: 'Sites', one: 'Site' },
  { key: 'i', at: 'images', name: 'Images', list: 'Images' },
  { key: 'd', at: 'changes', name: 'Changes', list: 'Changes' },
  { key: 'a', at: 'audit', name: 'Audit', list: 'Audit' },
  { key: 'h', at: 'health', name: 'Health', list: 'Health' },
  { key: 'n', at: 'more', name: 'More', list: 'More' },
  { key: 'u', at: 'access', name: 'Access', says: 'API tokens, roles, sessions, enrolment tokens', list: 'Access' },
  { key: 'b', at: 'budgets', name: 'Budgets and freeze', says: 'Limits for work that destroys data, and the switch that stops everything', list: 'Budgets' },
  { key: 'e', at: 'webhooks', name: 'Webhooks', says: 'Who is told of events, and what was sent', list: 'Webhooks', one: 'Webhook' },
  { key: 'c', at: 'bmcs', name: 'BMCs', says: 'Credentials, and certificates: those that have changed wait for you', list: 'BMCs' },
  { key: 't', at: 'scripts', name: 'Scripts', says: 'What plans run on machines over SSH', list: 'Scripts' },
  { key: 'v', at: 'about', name: 'About', says: 'Version, controllers, authority, keys', list: 'About' },
]

export const more = places.filter((p) => p.says)

// pageOf loads a page.
export async function pageOf(name: keyof typeof Lazy): Promise<Component<{ id: string }>> {
  const lazy = await import('./pages/lazy')
  return lazy[name] as Component<{ id: string }>
}
