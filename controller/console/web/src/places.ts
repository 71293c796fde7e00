// The pages, their keys and where they are. All but the first are loaded when they are asked for.
import type { Component } from 'svelte'

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Page = () => Promise<{ default: Component<any> }>

interface Place {
  key: string
  at: string
  name: string
  // says is there of those that "More" leads to.
  says?: string
  list?: Page
  one?: Page
}

export const places: Place[] = [
  { key: 'f', at: '', name: 'Fleet' },
  { key: 'm', at: 'machines', name: 'Machines', list: () => import('./pages/Machines.svelte'), one: () => import('./pages/Machine.svelte') },
  { key: 'o', at: 'operations', name: 'Operations', list: () => import('./pages/Operations.svelte'), one: () => import('./pages/Operation.svelte') },
  { key: 'r', at: 'rollouts', name: 'Rollouts', list: () => import('./pages/Rollouts.svelte'), one: () => import('./pages/Rollout.svelte') },
  { key: 'w', at: 'workflows', name: 'Workflows', list: () => import('./pages/Workflows.svelte'), one: () => import('./pages/Workflow.svelte') },
  { key: 's', at: 'sites', name: 'Sites', list: () => import('./pages/Sites.svelte'), one: () => import('./pages/Site.svelte') },
  { key: 'i', at: 'images', name: 'Images', list: () => import('./pages/Images.svelte') },
  { key: 'a', at: 'audit', name: 'Audit', list: () => import('./pages/Audit.svelte') },
  { key: 'h', at: 'health', name: 'Health', list: () => import('./pages/Health.svelte') },
  { key: 'n', at: 'more', name: 'More', list: () => import('./pages/More.svelte') },
  { key: 'u', at: 'access', name: 'Access', says: 'API tokens, roles, sessions, enrolment tokens', list: () => import('./pages/Access.svelte') },
  { key: 'b', at: 'budgets', name: 'Budgets and freeze', says: 'Limits for work that destroys data, and the switch that stops everything', list: () => import('./pages/Budgets.svelte') },
  { key: 'e', at: 'webhooks', name: 'Webhooks', says: 'Who is told of events, and what was sent', list: () => import('./pages/Webhooks.svelte'), one: () => import('./pages/Webhook.svelte') },
  { key: 'c', at: 'bmcs', name: 'Certificates of BMCs', says: 'Those that have changed wait for you', list: () => import('./pages/BMCs.svelte') },
  { key: 't', at: 'scripts', name: 'Scripts', says: 'What plans run on machines over SSH', list: () => import('./pages/Scripts.svelte') },
  { key: 'v', at: 'about', name: 'About', says: 'Version, controllers, authority, keys', list: () => import('./pages/About.svelte') },
]

export const more = places.filter((p) => p.says)

// loadAll has the pages here before they are needed, so that they open while the controller does not answer.
export async function loadAll(): Promise<void> {
  for (const load of places.flatMap((p) => [p.list, p.one])) await load?.().catch(() => undefined)
}
