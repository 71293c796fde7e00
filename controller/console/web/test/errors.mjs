// Every page while one of its calls is not answered: it says so, shows nothing of it as empty, and nothing is green.
import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'

const rests = 'the database rests'
// What a page shows where there is nothing, and the call that must have been answered for it.
const empties = {
  'Nothing does.': /\/(machine-map|fleet-summary|sites|agents|bmc-certificates|bmc-credentials|api-tokens|webhooks|controllers|machines|images)$/,
  'There are no machines yet': /\/(machines|machine-map)$/,
  'No machine matches': /\/(machines|machine-map)$/,
  'Its agent has given no address.': /\/leases$/,
  'No BMC has shown a certificate yet.': /\/bmc-certificates$/,
  'No certificate has changed.': /\/bmc-certificates$/,
  'No machine has been onboarded or decommissioned yet.': /\/workflows$/,
  'No operation has been asked for yet.': /\/operations$/,
  'No rollout has been made yet.': /\/rollouts$/,
  'No site has been set up yet.': /\/sites$/,
  'Nobody has a role.': /\/role-bindings$/,
  'Nobody has signed on with the provider.': /\/sessions$/,
  'None is held.': /\/budget-slots$/,
  'None was issued yet.': /\/bootstrap-tokens$/,
  'Nothing is in the log for this.': /\/audit-log$/,
  'Nothing unknown has asked to boot.': /\/discovered-machines$/,
  'Nothing was sent.': /\/webhook-deliveries$/,
  'The catalogue is empty.': /\/(images|scripts)$/,
  'There is none.': /\/(webhooks|api-tokens)$/,
  'There is none: neither kind of work is limited.': /\/budgets$/,
  'There is none: no BMC can be logged in to.': /\/bmc-credentials$/,
  'The fleet is not frozen': /\/server-info$/,
  'None differs.': /\/machine-map$/,
  'Nothing was done.': /\/audit-log$/,
  'Every agent is connected.': /\/agents$/,
  'None has enrolled.': /\/(sites|agents)\/[^/]+$/,
  'Nothing has been logged yet.': /\/logs$/,
  'It has no steps.': /\/runs\/[^/]+$/,
  'It was never tested.': /\/tests$/,
  'No operation has erased its disks.': /\/operations$/,
  'Ingot has not configured this host.': /\/operations$/,
}
// Calls that the frame of every page makes are tried on these pages.
const frame = /\/(server-info|machine-map|machine-events)$/
const framed = ['', 'machines', 'budgets', 'health', 'changes']

export async function errors({ page, base, ask, say, shot }) {
  for (const file of await readdir(new URL('../src', import.meta.url), { recursive: true })) {
    if (!file.endsWith('.svelte')) continue
    for (const [, text] of (await readFile(new URL('../src/' + file, import.meta.url), 'utf8')).matchAll(/empty="([^"]+)"/g))
      assert.ok(Object.keys(empties).some((e) => text.startsWith(e)), `${file}: which call answers “${text}”?`)
  }
  const api = async (path) => (await page.request.get(process.env.CONSOLE_URL + '/api/v1' + path, { headers: { Authorization: `Bearer ${process.env.CONSOLE_TOKEN}` } })).json()
  const first = async (list, key) => (await api(`/${list}?page_size=1`))[list][0]?.[key]
  await ask('ingot', 'webhook', 'create', 'https://hooks.example.org/x', '--name', 'tried')
  const pages = [
    '', 'machines', 'machines/web-1', 'operations', `operations/${await first('operations', 'operation_id')}`, 'rollouts', `rollouts/${await first('rollouts', 'rollout_id')}`,
    'workflows', `workflows/${await first('workflows', 'workflow_id')}`, 'sites', 'sites/berlin', 'images', 'changes', 'audit', 'health', 'access', 'budgets', 'webhooks', 'webhooks/tried',
    'bmcs', 'scripts', 'about',
  ].filter((p) => !p.endsWith('/undefined'))
  const failed = []
  let tried = 0
  for (const where of pages) {
    const calls = new Set()
    const note = (r) => r.method() === 'GET' && r.url().includes('/api/v1/') && calls.add(new URL(r.url()).pathname)
    await page.goto('about:blank') // what the page before it asks is not of this one
    page.on('request', note)
    await page.goto(base + where)
    await page.locator('main h1').first().waitFor()
    await page.waitForTimeout(1000)
    page.off('request', note)
    const mine = [...calls].filter((c) => framed.includes(where) || !frame.test(c))
    assert.ok(mine.length > 0, `${where} makes no call`)
    for (const call of mine) {
      tried++
      const answer = (route) => route.fulfill({ status: 503, contentType: 'application/json', body: JSON.stringify({ code: 14, message: rests, details: [] }) })
      const its = (url) => url.pathname === call
      await page.route(its, answer)
      try {
        await page.goto(base + where)
        await page.locator('[role=alert]').filter({ hasText: rests, visible: true }).first().waitFor({ timeout: 10_000 })
        await page.waitForFunction(() => document.documentElement.hasAttribute('data-stale'), undefined, { timeout: 3000 })
        await page.waitForTimeout(150)
        const seen = await page.evaluate(() => {
          const shades = (name) => {
            const probe = document.body.appendChild(document.createElement('span'))
            probe.style.color = `var(--${name})`
            const shade = getComputedStyle(probe).color
            probe.remove()
            return shade
          }
          return { text: document.querySelector('main').innerText, green: ['IDLE', 'BUSY'].filter((s) => shades(s) !== shades('soft')), stale: document.documentElement.hasAttribute('data-stale') }
        })
        // On two pages “None.” is of these calls.
        if ((where === '' && call.endsWith('/rollouts')) || (where === 'changes' && call.endsWith('/operations'))) assert.ok(!seen.text.split('\n').includes('None.'), 'shows “None.”')
        for (const [empty, of] of Object.entries(empties)) assert.ok(!(of.test(call) && seen.text.split('\n').some((l) => l.startsWith(empty))), `shows “${empty}”`)
        assert.deepEqual([seen.green, seen.stale], [[], true], 'shows green')
        if (call === mine.at(-1)) {
          await page.unroute(its, answer)
          await page.getByText(rests).first().waitFor({ state: 'detached', timeout: 15_000 })
          await page.waitForFunction(() => !document.documentElement.hasAttribute('data-stale'), undefined, { timeout: 15_000 })
        }
      } catch (e) {
        failed.push(`${where || 'fleet'} without ${call}: ${e.message.split('\n')[0]}`)
        await shot(`error-${failed.length}`)
      }
      await page.unroute(its, answer)
    }
  }
  await ask('ingot', 'webhook', 'delete', 'tried')
  assert.deepEqual(failed, [])
  say(`${tried} calls of ${pages.length} pages were not answered, and each page said so`)
}
