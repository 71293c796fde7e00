// What `ingot doctor` reads over the API and an operator must act on, in its words: what of the installation stands still.
import { connection, get, poll, said } from './api.svelte'
import type { Action } from './actions'
import { trust } from './bmcs'
import { filtered, link } from './router.svelte'
import type { Agent, APIToken, BMCCertificate, BMCCredentials, Controller, Image, Machine, Site, Time, Webhook } from './types'

// Finding is a sentence: what, since when, and what follows; with its remedy, and the page where it is seen or mended.
export interface Finding {
  fault: boolean
  check: string
  what: string
  since?: Time
  then?: string
  remedy: string
  to?: string
  action?: Action
  // site is the one that it is about, where the fleet's causes may name it as well.
  site?: string
}

interface Check {
  name: string
  admin?: boolean
  look(signal: AbortSignal): Promise<Finding[]>
}

const minute = 60_000
const day = 24 * 60 * minute
const tokenSoon = 14 * day
const certificateSoon = 7 * day
const named = 10
// every is how often a check is made.
const every = 30_000

// firstOf names the first of a list.
const firstOf = (names: string[]): string =>
  names.slice(0, named).join(', ') + (names.length > named ? ` and ${names.length - named} more` : '')
const at = (t: Time): number => (t ? Date.parse(t) : 0)

async function controllers(signal: AbortSignal): Promise<Finding[]> {
  const all = (await get<{ controllers: Controller[] }>('/controllers', { page_size: 100 }, signal)).controllers
  const here = all.find((c) => c.answering)?.version
  return all.filter((c) => here && c.state === 'SERVING' && c.version !== here).map((c) => ({
    fault: false, check: 'controllers', remedy: 'finish the upgrade', to: link('health'),
    what: `${c.controller_id} on ${c.hostname} has version ${c.version}, and the one that answers ${here}`,
  }))
}

const listSites = async (signal: AbortSignal): Promise<Site[]> => (await get<{ sites: Site[] }>('/sites', { page_size: 1000 }, signal)).sites
const late = (s: Site): boolean => s.agent_id !== '' && Number(s.applied_revision) < Number(s.revision)

async function sites(signal: AbortSignal): Promise<Finding[]> {
  let all = await listSites(signal)
  // An agent that has just been told something new has a moment for it.
  for (let i = 0; i < 3 && all.some(late); i++) {
    await new Promise((r) => setTimeout(r, 1000))
    all = await listSites(signal)
  }
  const found: Finding[] = []
  const serving = all.filter((s) => s.segments.length)
  for (const s of serving) {
    const to = link('sites', s.site)
    if (!s.agent_id)
      found.push({
        fault: true, check: 'sites', what: `${s.site} has segments and no agent`, to,
        remedy: `ingot token issue --role site --site ${s.site} --bare, and on its machine ingot-agent setup --token-file -`,
      })
    else if (late(s))
      found.push({ fault: false, check: 'sites', what: `${s.site} serves by revision ${s.applied_revision} of ${s.revision}`, to, remedy: 'on its machine: ingot-agent doctor' })
  }
  if (!serving.length) return found
  for (const kind of ['installer-kernel', 'installer-uki'])
    if ((await get<{ images: Image[] }>('/images', { filter: `kind=${kind}`, page_size: 1 }, signal)).images.length) return found
  return [...found, {
    fault: true, check: 'installer', what: 'there is none, so that no machine can be installed from the network', to: link('images'),
    remedy: 'on the controller’s machine: apt install ingot-installer, then ingot setup again',
  }]
}

// lastCertificate is that of an agent's certificates that ends last, of those that are not revoked.
const lastCertificate = (a: Agent) => a.certs.filter((c) => !c.revoked_at).sort((x, y) => at(y.not_after) - at(x.not_after))[0]

// agents looks at those that are away. A host that needs a person for it is in the list of machines.
async function agents(signal: AbortSignal): Promise<Finding[]> {
  const ask = async (filter: string) => (await get<{ agents: Agent[] }>('/agents', { filter, page_size: 1000 }, signal)).agents
  const found: Finding[] = (await ask('role=site,connected=false')).filter(lastCertificate).map((a) => ({
    fault: true, check: 'agents', what: `the agent of site ${a.site} is away`, since: a.last_heartbeat_at, to: link('sites', a.site), site: a.site,
    remedy: 'on its machine: ingot-agent doctor; systemctl status ingot-agent',
  }))
  const now = Date.now()
  for (const a of await ask('connected=false')) {
    const c = lastCertificate(a)
    if (!c || a.role === 'AGENT_ROLE_SITE') continue
    const end = at(c.not_after)
    if (end > now && end < now + Math.min(certificateSoon, (end - at(c.not_before)) / 3))
      found.push({
        fault: false, check: 'agents', what: `${a.agent_id}${a.machine_id ? ` of ${a.machine_id}` : ''} is away, and its certificate ends soon`,
        remedy: 'on its machine: ingot-agent doctor', to: a.machine_id ? link('machines', a.machine_id) : link('health'),
      })
  }
  return found
}

async function reachable(signal: AbortSignal): Promise<Finding[]> {
  const filter = 'conditions.BMCReachable=false'
  const a = await get<{ machines: Machine[]; next_page_token: string }>('/machines', { filter, page_size: named }, signal)
  const ids = a.machines.filter((m) => m.spec?.bmc_endpoint && at(m.created_at) < Date.now() - minute).map((m) => m.machine_id)
  if (!ids.length) return []
  return [{
    fault: false, check: 'bmc', what: `no answer from those of ${ids.join(', ')}${a.next_page_token ? ' and more' : ''}`,
    remedy: `ingot why ${ids[0]}`, to: filtered('machines', filter),
  }]
}

async function certificates(signal: AbortSignal): Promise<Finding[]> {
  const a = await get<{ certificates: BMCCertificate[] }>('/bmc-certificates', { changed: true, page_size: 1000 }, signal)
  return a.certificates.map((c) => ({
    fault: true, check: 'bmc', what: `${c.endpoint} shows another certificate`, since: c.offered_at, then: 'and gets no password', to: link('bmcs'),
    remedy: c.machine_ids[0] ? `compare, then ingot bmc trust ${c.machine_ids[0]} --sha256 ${c.offered_sha256}` : 'no machine has this BMC any more',
    action: c.machine_ids[0] ? trust(c) : undefined,
  }))
}

async function credentials(signal: AbortSignal): Promise<Finding[]> {
  const all = (await get<{ credentials: BMCCredentials[] }>('/bmc-credentials', { page_size: 1000 }, signal)).credentials
  return all.flatMap((c) => {
    const what = `credentials ${c.credentials_ref} `
    const allow = `ingot bmc credentials allow ${c.credentials_ref}`
    const of = { check: 'bmc', to: link('bmcs') }
    const found: Finding[] = []
    if (c.refused_machines.length)
      found.push({
        ...of, fault: true, remedy: `${allow} --allow …, or correct bmc_endpoint`,
        what: `${what}are not for the BMCs of ${c.refused_machines.length} machines that name them: ${firstOf(c.refused_machines)}`,
      })
    if (c.adopted)
      found.push({ ...of, fault: false, what: `${what}may go where an upgrade found them in use: ${c.allowed_endpoints.join(' ')}`, remedy: `${allow} --allow … with those that are right` })
    if (c.allow_plain_http)
      found.push({ ...of, fault: false, what: `${what}may be sent without TLS`, remedy: `${allow} --allow-plain-http=false, and redfish:// in the machines’ bmc_endpoint` })
    if (c.allow_unverified_tls)
      found.push({ ...of, fault: false, what: `${what}may be sent whatever certificate a BMC shows`, remedy: `${allow} --allow-unverified-tls=false` })
    return found
  })
}

async function tokens(signal: AbortSignal): Promise<Finding[]> {
  const all = (await get<{ tokens: APIToken[] }>('/api-tokens', { page_size: 1000 }, signal)).tokens
  const now = Date.now()
  const of = { fault: false, check: 'tokens', to: link('access') }
  return all.flatMap((t) => {
    const found: Finding[] = []
    if (t.scope === 'report' && !t.selection)
      found.push({
        ...of, what: `${t.name} reports about every machine`,
        remedy: t.token_id ? `ingot token create NAME --scope report --selection site=SITE, then ingot token revoke ${t.token_id}` : 'in the token file, end its line with a selection such as site=berlin or machine_id=m-1',
      })
    const end = at(t.expires_at)
    if (end > now && end < now + tokenSoon && !t.revoked_at)
      found.push({ ...of, what: `${t.name} ends soon`, remedy: `ingot token create ${t.name} --scope ${t.scope}` })
    return found
  })
}

async function webhooks(signal: AbortSignal): Promise<Finding[]> {
  const all = (await get<{ webhooks: Webhook[] }>('/webhooks', { page_size: 1000 }, signal)).webhooks
  return all.flatMap((w): Finding[] => {
    const of = { check: 'webhooks', to: link('webhooks', w.webhook_id) }
    const test = `ingot webhook test ${w.webhook_id}`
    if (w.state !== 'active' && w.state_reason !== 'OPERATOR')
      return [{ ...of, fault: true, what: `${w.webhook_id} is ${w.state}: ${w.state_reason}`, remedy: `${test}; ingot webhook resume ${w.webhook_id}` }]
    return w.failing_since ? [{ ...of, fault: false, what: `${w.webhook_id} takes nothing`, since: w.failing_since, remedy: test }] : []
  })
}

const checks: Check[] = [
  { name: 'controllers', look: controllers }, { name: 'sites', look: sites }, { name: 'agents', look: agents },
  { name: 'bmc', look: certificates }, { name: 'bmc', look: reachable }, { name: 'bmc', look: credentials, admin: true },
  { name: 'tokens', look: tokens, admin: true }, { name: 'webhooks', look: webhooks, admin: true },
]

// mine: the caller has the right to make a check.
const mine = (c: Check | undefined): boolean => !c?.admin || connection.may('admin')

export class Doctor {
  // found has a place for each check: null until it was made, and again where it could not be made.
  private found = $state.raw<(Finding[] | null)[]>(checks.map(() => null))
  private errors = $state.raw<string[]>([])

  get findings(): Finding[] {
    const all = this.found.flatMap((f) => f ?? [])
    return [...all.filter((f) => f.fault), ...all.filter((f) => !f.fault)]
  }

  // known: each check that the caller may make was made.
  get known(): boolean {
    return this.found.every((f, i) => f !== null || !mine(checks[i]))
  }

  // unread are checks that could not be made, each with its cause.
  get unread(): string[] {
    return [...new Set(this.errors.filter(Boolean))]
  }

  // follow makes each check again and again, by itself: none waits for another.
  follow(): () => void {
    const put = (i: number, found: Finding[] | null, error: string) => {
      this.found = this.found.with(i, found)
      const errors = [...this.errors]
      errors[i] = error
      this.errors = errors
    }
    const stops = checks.map((c, i) =>
      poll(every, async (signal) => {
        if (!mine(c)) return
        try {
          const found = await c.look(signal)
          if (!signal.aborted) put(i, found, '')
        } catch (e) {
          if (!signal.aborted) put(i, null, `${c.name}: not checked: ${said(e)}`)
          throw e
        }
      }),
    )
    return () => stops.forEach((stop) => stop())
  }
}
